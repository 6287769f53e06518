"""The LightningDataModule: wires loading, encoding and batching; no logic of its own."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from lightning.pytorch import LightningDataModule
from numpy.typing import NDArray
from torch.utils.data import DataLoader

from bert_lightning import __version__
from bert_lightning.data.batching import BucketBatchSampler, padding_waste
from bert_lightning.data.columnar import HUB_PREFIX
from bert_lightning.data.columns import Columns
from bert_lightning.data.encoding import Batch, EncodedRows, Truncation
from bert_lightning.data.files import check_encoding
from bert_lightning.data.labels import Trained, balanced_weights
from bert_lightning.data.layouts import LayoutName
from bert_lightning.data.loading import BUILTIN, LoadingSettings, News, load_news, read_any
from bert_lightning.data.reading import ReadingSettings
from bert_lightning.data.records import SPLITS, Record, Split
from bert_lightning.data.storage import Storage, default_cache_folder
from bert_lightning.data.texts import read_texts
from bert_lightning.data.token_store import TokenStore
from bert_lightning.errors import ConfigError, DataError
from bert_lightning.inspection.examination import inspect
from bert_lightning.inspection.results import Inspection
from bert_lightning.inspection.short_form import short_form
from bert_lightning.inspection.subject import subject_of_files, subject_of_news

PROJECT_DATA = Path(__file__).parent.parent / "data" / "thucnews"  # beside main.py
SUMMARY = "summary.txt"
LEAST = {
    "batch_size": 1,
    "max_length": 3,  # [CLS], a piece, [SEP]
    "num_workers": 0,
    "pad_to_multiple_of": 1,
    "tokens_per_batch": 1,
    "num_proc": 1,
}
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
        truncation: What is kept of a longer text: its beginning (head), its end (tail), or the
            first quarter and the end (head_tail).
        pad_to_multiple_of: A batch is as wide as its longest row, rounded up to a multiple of this.
        tokens_per_batch: Instead of ``batch_size`` rows as many as fit: rows × padded length is at
            most this on one device.
        num_proc: Processes that tokenise a new data set; null takes all cores in this one.
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
        truncation: Truncation = "head",
        pad_to_multiple_of: int = 1,
        tokens_per_batch: int | None = None,
        num_proc: int | None = None,
        class_weights: list[float] | Literal["balanced"] | None = None,
        predict_path: str | None = None,
        trained: Trained | None = None,
        seed: int = 0,
        cache_dir: str | None = None,
    ) -> None:
        super().__init__()
        _check_ranges(
            holdout_ratio,
            batch_size=batch_size,
            max_length=max_length,
            num_workers=num_workers,
            pad_to_multiple_of=pad_to_multiple_of,
            tokens_per_batch=tokens_per_batch,
            num_proc=num_proc,
        )
        check_encoding(encoding)
        columns = Columns(text_column, label_column)
        self._reading = ReadingSettings(encoding, layout, columns, tuple(class_names or ()))
        self.on_bad_row = on_bad_row
        self.drop_leaked = drop_leaked
        self.storage = Storage(
            _expanded("data.cache_dir", cache_dir) if cache_dir else default_cache_folder()
        )
        self.tokens = TokenStore(self.storage, max_length, truncation, pad_to_multiple_of, num_proc)
        self.path, self.reason = resolve_data_path(path)
        self.batch_size = batch_size
        self.max_length = max_length
        self.holdout_ratio = holdout_ratio
        self.num_workers = num_workers
        self.pad_to_multiple_of = pad_to_multiple_of
        self.tokens_per_batch = tokens_per_batch
        self.class_weights = class_weights
        self.predict_path = predict_path
        self.trained = trained
        self.seed = seed
        self._news: News | None = None
        self._rows: dict[str, EncodedRows] = {}
        self.predict_records: list[Record] = []
        self.overlong_texts = 0

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
        return LoadingSettings(
            self._reading, self.holdout_ratio, self.seed, self.on_bad_row, self.drop_leaked
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
            return balanced_weights(self.news.class_indices("train"), len(names))
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

    def prepare_data(self) -> None:
        """Tokenise once on each machine, so that the other processes only open files."""
        for split in self._wanted(str(self.trainer.state.fn)):  # type: ignore[union-attr]
            self.tokens.rows(self.news.records[split], self.news.entry, self._module.tokenizer)

    def setup(self, stage: str) -> None:
        """Open the rows that a stage needs: fit (train, val), validate, test or predict."""
        for split in self._wanted(stage):
            if split not in self._rows:
                self._rows[split] = self._encode_split(split)
        if stage == "predict":
            self._setup_predict()

    def _wanted(self, stage: str) -> list[Split]:
        splits = {"fit": SPLITS[:2], "validate": SPLITS[1:2], "test": SPLITS[2:]}.get(stage, ())
        return [split for split in splits if split in self.news.records]

    @property
    def _module(self) -> Any:
        assert self.trainer is not None
        return self.trainer.lightning_module

    def _encode_split(self, split: Split) -> EncodedRows:
        rows = self.tokens.rows(self.news.records[split], self.news.entry, self._module.tokenizer)
        rows = rows.select(np.arange(len(rows)), self.news.class_indices(split))
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
        self.predict_records, self.overlong_texts = read_texts(
            path, self._reading.encoding, self._reading.columns
        )
        if not self.predict_records:
            raise DataError([f"data.predict_path: expected texts – {path} is empty"])
        texts = [record.text for record in self.predict_records]
        self._rows["predict"] = self.tokens.rows_in_memory(texts, self._module.tokenizer)

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
        if split in ("val", "test"):
            self.check_processes(split, self.trainer.world_size)
        sampler = self._sampler(
            rows.lengths,
            shuffle=shuffle,
            same_order=bool(self.trainer.overfit_batches),  # type: ignore[attr-defined]
            rank=self.trainer.global_rank,
            world_size=self.trainer.world_size,
        )
        return DataLoader(
            rows,
            batch_sampler=sampler,
            collate_fn=as_it_is,
            # or the copy of a large batch would wait for the step before
            pin_memory=self.trainer.strategy.root_device.type == "cuda",
            num_workers=self.num_workers,
            persistent_workers=self.num_workers > 0,
            # what it draws for its workers would move the numbers of dropout
            generator=torch.Generator().manual_seed(self.seed),
        )

    def check_processes(self, split: str, processes: int) -> None:
        """Refuse more processes than an evaluation has rows.

        Raises:
            ConfigError: With the number of rows.
        """
        rows = self.splits.get(split)  # type: ignore[call-overload]
        if rows is not None and rows < processes:
            raise ConfigError(
                f"trainer.devices: expected at most {rows}, as many as {split} has rows"
                f" – found {processes}"
            )

    def training_batches(self, processes: int) -> int:
        """Return the batches of an epoch on each of some processes; call setup first."""
        return len(self._sampler(self._rows["train"].lengths, shuffle=True, world_size=processes))

    @property
    def longest_input(self) -> int:
        """Padded length of the longest training row, in pieces; call setup first."""
        longest, multiple = int(self._rows["train"].lengths.max()), self.pad_to_multiple_of
        return min(self.max_length, -(-longest // multiple) * multiple)

    def inspection(self, tokenizer: Any) -> Inspection:
        """Return what is in the files and what is wrong with it; nothing is left out.

        Args:
            tokenizer: The fast tokenizer that counts the pieces.

        Raises:
            DataError: The files cannot be read at all.
        """
        reading = read_any(self.path, self.storage, self._reading)
        rows = {
            split: self.tokens.rows(records, reading.entry, tokenizer)
            for split, records in reading.records.items()
        }
        subject = subject_of_files(reading, self._reading.class_names, rows, tokenizer)
        return inspect(subject, self.max_length, self.batch_size, self._padding_waste)

    def summary(self) -> list[str]:
        """Return a few lines about the rows of a fit, counted once for the same data."""
        key = {
            "version": __version__,  # of the words
            "data": self.news.entry,
            "classes": [self.news.labels.names, self.news.labels.meanings],
            "rows": {split: len(records) for split, records in self.news.records.items()},
            "settings": repr(self._loading_settings),
            "tokens": self.tokens.key(self._module.tokenizer),
            "batches": [self.batch_size, self.tokens_per_batch, self.pad_to_multiple_of],
        }
        folder = self.storage.entry("summary", key, self._write_summary)
        return (folder / SUMMARY).read_text(encoding="utf-8").splitlines()

    def _write_summary(self, folder: Path) -> None:
        tokenizer = self._module.tokenizer
        rows = {
            split: self.tokens.rows(records, self.news.entry, tokenizer)
            for split, records in self.news.records.items()
        }
        subject = subject_of_news(self.news, rows)
        inspection = inspect(subject, self.max_length, self.batch_size, self._padding_waste)
        (folder / SUMMARY).write_text("\n".join(short_form(inspection)), encoding="utf-8")

    def _padding_waste(self, lengths: NDArray[np.int64], batch_size: int) -> float:
        batches = self._sampler(lengths, shuffle=True)
        return padding_waste(lengths, batches, self.pad_to_multiple_of)

    def _sampler(self, lengths: NDArray[np.int64], **how: Any) -> BucketBatchSampler:
        return BucketBatchSampler(
            lengths,
            self.batch_size,
            seed=self.seed,
            tokens_per_batch=self.tokens_per_batch,
            pad_to_multiple_of=self.pad_to_multiple_of,
            **how,
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
    if not path.strip():
        raise ConfigError("data.path: expected a folder or a file – found an empty name")
    if path == BUILTIN or path.startswith(HUB_PREFIX):
        return path, None
    return str(_expanded("data.path", path).absolute()), None


def _expanded(key: str, path: str) -> Path:
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        user = Path(path).parts[0]
        raise ConfigError(f"{key}: expected a path – found {user}, no known user's home") from error


def _check_ranges(holdout_ratio: float, **numbers: int | None) -> None:
    problems = [
        f"data.{key}: expected {LEAST[key]} or more – found {number}"
        for key, number in numbers.items()
        if number is not None and number < LEAST[key]
    ]
    if not 0 < holdout_ratio < 0.5:
        problems.append(f"data.holdout_ratio: expected above 0, below 0.5 – found {holdout_ratio}")
    if problems:
        raise ConfigError("\n".join(problems))
