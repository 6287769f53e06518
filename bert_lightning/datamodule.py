"""The LightningDataModule: wires loading, encoding and batching; no logic of its own."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Literal

import numpy as np
from lightning.pytorch import LightningDataModule
from torch.utils.data import DataLoader

from bert_lightning.data.batching import BucketBatchSampler
from bert_lightning.data.columnar import HUB_PREFIX
from bert_lightning.data.columns import Columns
from bert_lightning.data.encoding import Batch, EncodedRows, encode
from bert_lightning.data.files import check_encoding
from bert_lightning.data.labels import Trained
from bert_lightning.data.layouts import LayoutName
from bert_lightning.data.loading import BUILTIN, LoadingSettings, News, load_news
from bert_lightning.data.reading import ReadingSettings
from bert_lightning.data.records import Record, Split
from bert_lightning.data.storage import Storage, default_cache_folder
from bert_lightning.data.texts import read_texts
from bert_lightning.errors import ConfigError, DataError

PROJECT_DATA = Path(__file__).parent.parent / "data" / "thucnews"  # beside main.py
UNKNOWN_LIMIT = 0.2  # real titles have under 1 % [UNK] pieces with a vocabulary that fits


class THUCNewsDataModule(LightningDataModule):
    """THUCNews titles, or any texts with one class each, from a folder or a file.

    Args:
        path: A folder with train, val (or dev) and test files, or one file, which is split.
            ``auto`` is data/thucnews beside main.py if it holds data, else ``builtin``, made-up
            headlines.
        layout: What a line of a text file is; ``auto`` tells it from the data and says so.
        encoding: ``auto`` (UTF-8 or GB18030), or the name of an encoding.
        text_column: Column of the texts, where columns have names; null tells it by its name.
        label_column: Column of the labels, the same way.
        class_names: Names of the classes in order; null takes them from class.txt, or else from the
            data.
        on_bad_row: ``error`` refuses data with rows that cannot be used; ``skip`` leaves them out
            and lists them in dropped_rows.csv of the run.
        drop_leaked: Leave out rows of train whose headline stands in val or test too, and those of
            val that stand in test.
        batch_size: Rows a batch on one device.
        max_length: Most pieces of a text, [CLS] and [SEP] included; the rest is cut off.
        holdout_ratio: Share of the train rows for each of val and test where these have no file.
        num_workers: Processes that prepare batches; 0 is fastest for rows that are tokenised
            already.
        class_weights: Weight of each class in the training loss, in the order of the classes;
            ``balanced`` makes them inverse to the classes' rows; null weighs all rows alike.
        predict_path: Texts for predict: .txt (one a line), .jsonl, .csv, or - for standard input.
        trained: Set from a checkpoint: its classes in the model's order, and the fingerprint that
            the data must still have.
        seed: Seed of order and split; follows seed_everything.
        cache_dir: Folder for what is read and tokenised once; null is ~/.cache/bert_lightning.
    """

    def __init__(
        self,
        path: str = "auto",
        layout: LayoutName = "auto",
        encoding: str = "auto",
        text_column: str | None = None,
        label_column: str | None = None,
        class_names: list[str] | None = None,
        on_bad_row: Literal["error", "skip"] = "error",
        drop_leaked: bool = False,
        batch_size: int = 32,
        max_length: int = 128,
        holdout_ratio: float = 0.1,
        num_workers: int = 0,
        class_weights: list[float] | Literal["balanced"] | None = None,
        predict_path: str | None = None,
        trained: Trained | None = None,
        seed: int = 0,
        cache_dir: str | None = None,
    ) -> None:
        super().__init__()
        _check_ranges(batch_size, max_length, holdout_ratio, num_workers)
        check_encoding(encoding)
        self.layout = layout
        self.encoding = encoding
        self._columns = Columns(text_column, label_column)
        self.on_bad_row = on_bad_row
        self.drop_leaked = drop_leaked
        self.storage = Storage(Path(cache_dir) if cache_dir else default_cache_folder())
        self.path, self.reason = resolve_data_path(path)
        self.class_names = class_names
        self.batch_size = batch_size
        self.max_length = max_length
        self.holdout_ratio = holdout_ratio
        self.num_workers = num_workers
        self.class_weights = class_weights
        self.predict_path = predict_path
        self.trained = trained
        self.seed = seed
        self._news: News | None = None
        self._rows: dict[str, EncodedRows] = {}
        self.predict_records: list[Record] = []

    @property
    def news(self) -> News:
        """The records; read at first use.

        Raises:
            DataError: Everything wrong with the files.
            CheckpointError: The data does not fit the checkpoint.
        """
        if self._news is None:
            self._news = load_news(self.path, self.storage, self._loading_settings, self.trained)
        return self._news

    @property
    def _loading_settings(self) -> LoadingSettings:
        reading = ReadingSettings(
            self.encoding, self.layout, self._columns, tuple(self.class_names or ())
        )
        return LoadingSettings(
            reading, self.holdout_ratio, self.seed, self.on_bad_row, self.drop_leaked
        )

    @property
    def label_names(self) -> list[str]:
        """Class names in order, known before setup; the model takes them from here."""
        return self.trained.class_names if self.trained else self.news.labels.names

    @property
    def loss_weights(self) -> list[float] | None:
        """Weight of each class in the training loss; the model takes them from here.

        Raises:
            ConfigError: Not one positive number for each class.
        """
        if self.class_weights is None or self.predict_path:
            return None
        names = self.label_names
        if self.class_weights == "balanced":
            if "train" not in self.news.records:
                return None
            rows = np.bincount(self.news.class_indices("train"), minlength=len(names))
            # as scikit-learn's: the mean over rows is 1; a class without rows is never weighed
            return [float(sum(rows) / (len(names) * max(1, count))) for count in rows]
        weights = self.class_weights
        if len(weights) != len(names) or not all(0 < weight < math.inf for weight in weights):
            raise ConfigError(
                f"data.class_weights: expected {len(names)} numbers above 0, for"
                f" {', '.join(names)} – found {weights}"
            )
        return list(weights)

    @property
    def splits(self) -> dict[Split, int]:
        """Rows of each split."""
        return {split: len(records) for split, records in self.news.records.items()}

    def setup(self, stage: str) -> None:
        """Tokenise what a stage needs: fit (train, val), validate, test or predict."""
        wanted: dict[str, tuple[Split, ...]] = {
            "fit": ("train", "val"),
            "validate": ("val",),
            "test": ("test",),
        }
        for split in wanted.get(stage, ()):
            if split not in self._rows and self.news.records.get(split):
                self._rows[split] = self._encode_split(split)
        if stage == "predict":
            self._setup_predict()

    @property
    def _module(self) -> Any:
        assert self.trainer is not None
        return self.trainer.lightning_module

    def _encode_split(self, split: Split) -> EncodedRows:
        records = self.news.records[split]
        rows = encode(
            list(records.strings("text")),
            self.news.class_indices(split).tolist(),
            self._module.tokenizer,
            self.max_length,
        )
        if rows.unknown_ratio > UNKNOWN_LIMIT:
            raise DataError(
                [
                    f"{self.path}: expected a vocabulary that knows this text – found"
                    f" {rows.unknown_ratio:.0%} of {split}'s pieces unknown"
                ],
                "the tokenizer of --model.pretrained does not fit the text",
            )
        return rows

    def _setup_predict(self) -> None:
        if not self.predict_path:
            raise ConfigError(
                "data.predict_path: expected a file of texts (.txt, .jsonl, .csv) or - for standard"
                " input – found nothing\ngive --data.predict_path FILE"
            )
        path = Path(self.predict_path)
        if not path.is_file():
            raise DataError(
                [f"data.predict_path: expected a file – found nothing at {path.absolute()}"]
            )
        self.predict_records = read_texts(path, self.encoding, self._columns)
        if not self.predict_records:
            raise DataError([f"data.predict_path: expected texts – {path} is empty"])
        texts = [record.text for record in self.predict_records]
        self._rows["predict"] = encode(texts, None, self._module.tokenizer, self.max_length)

    def expect_split(self, command: str) -> None:
        """Refuse to validate or test without rows, before anything is written.

        Raises:
            DataError: The data has no such split.
        """
        split = {"validate": "val", "test": "test"}.get(command)
        if split and split not in self.splits:
            raise DataError([f"{self.path}: expected a {split} file – found none"])

    def rows(self, split: str) -> EncodedRows | None:
        """Return the encoded rows of a split, or None before setup or where there are none."""
        return self._rows.get(split)

    def train_dataloader(self) -> DataLoader[Batch]:
        """Shuffled, length-bucketed batches; as many on every process."""
        return self._loader("train", shuffle=True)

    def val_dataloader(self) -> DataLoader[Batch]:
        """Each row of val once over all processes."""
        return self._loader("val")

    def test_dataloader(self) -> DataLoader[Batch]:
        """Each row of test once over all processes."""
        return self._loader("test")

    def predict_dataloader(self) -> DataLoader[Batch]:
        """Each text once over all processes."""
        return self._loader("predict")

    def _loader(self, split: str, shuffle: bool = False) -> DataLoader[Batch]:
        assert self.trainer is not None
        if split not in self._rows:
            raise DataError([f"{self.path}: expected a {split} file – found none"])
        rows = self._rows[split]
        if len(rows) < self.trainer.world_size and split in ("val", "test"):
            raise ConfigError(
                f"trainer.devices: expected at most {len(rows)}, as many as {split} has rows"
                f" – found {self.trainer.world_size}"
            )
        sampler = BucketBatchSampler(
            rows.lengths,
            self.batch_size,
            shuffle=shuffle,
            same_order=bool(self.trainer.overfit_batches),  # type: ignore[attr-defined]
            seed=self.seed,
            rank=self.trainer.global_rank,
            world_size=self.trainer.world_size,
        )
        return DataLoader(
            rows,
            batch_sampler=sampler,
            collate_fn=as_it_is,
            num_workers=self.num_workers,
            persistent_workers=self.num_workers > 0,
        )


def as_it_is(batch: Any) -> Any:
    """Return the batch that `EncodedRows.__getitems__` has padded already."""
    return batch


def resolve_data_path(path: str) -> tuple[str, str | None]:
    """Return what ``auto`` takes and why, or an explicit path as an absolute one."""
    if path == "auto":
        if PROJECT_DATA.is_dir() and any(PROJECT_DATA.iterdir()):
            return str(PROJECT_DATA), "data/thucnews beside main.py holds data"
        return BUILTIN, "no data/thucnews beside main.py"
    is_no_file = path == BUILTIN or path.startswith(HUB_PREFIX)
    return path if is_no_file else str(Path(path).absolute()), None


def _check_ranges(batch_size: int, max_length: int, holdout_ratio: float, num_workers: int) -> None:
    problems = []
    if batch_size < 1:
        problems.append(f"data.batch_size: expected 1 or more – found {batch_size}")
    if max_length < 3:
        problems.append(f"data.max_length: expected 3 or more – found {max_length}")
    if not 0 < holdout_ratio < 0.5:
        problems.append(f"data.holdout_ratio: expected above 0, below 0.5 – found {holdout_ratio}")
    if num_workers < 0:
        problems.append(f"data.num_workers: expected 0 or more – found {num_workers}")
    if problems:
        raise ConfigError("\n".join(problems))
