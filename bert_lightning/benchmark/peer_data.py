"""Made-up texts of THUCNews' lengths, and the same rows tokenised for the peers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bert_lightning.benchmark.base_shape import make_base_folder
from bert_lightning.data.encoding import EncodedRows
from bert_lightning.datamodule import THUCNewsDataModule
from bert_lightning.demo.mini_bert import ideographs, mini_config, mini_tokenizer

CLASSES = ("体育", "娱乐", "家居", "科技")
HEADLINE_PIECES = (21.0, 4.0, 40)  # mean, standard deviation, most; [CLS] and [SEP] included
LONG_PIECES = (128.0, 0.0, 128)
SPECIAL_PIECES = 2
LEAST_CHARACTERS = 4
SEED = 42  # that of fit, by which a file is split
SMALL_SPLIT = 64  # rows of val and test, which are not measured


def made_up_texts(rows: int, pieces: tuple[float, float, int], seed: int = 0) -> Iterator[str]:
    """Yield texts of random ideographs, each of them one piece.

    Args:
        rows: How many.
        pieces: Mean, standard deviation and most of the pieces.
        seed: The same texts for the same seed.
    """
    mean, deviation, most = pieces
    generator = np.random.default_rng(seed)
    lengths = np.rint(generator.normal(mean, deviation, rows)).astype(int) - SPECIAL_PIECES
    signs = np.array([ord(sign) for sign in ideographs()], dtype="<u4")
    for length in np.clip(lengths, LEAST_CHARACTERS, most - SPECIAL_PIECES):
        yield generator.choice(signs, length).tobytes().decode("utf-32-le")


def write_data(folder: Path, rows: int, pieces: tuple[float, float, int]) -> None:
    """Write train, val and test files, the classes in turn."""
    folder.mkdir(parents=True)
    sizes = {"train": rows, "val": SMALL_SPLIT, "test": SMALL_SPLIT}
    for seed, (split, size) in enumerate(sizes.items()):
        lines = [
            f"{text}\t{CLASSES[number % len(CLASSES)]}\n"
            for number, text in enumerate(made_up_texts(size, pieces, seed))
        ]
        (folder / f"{split}.txt").write_text("".join(lines), encoding="utf-8", newline="\n")


def make_model(folder: Path, small: bool) -> None:
    """Write a model folder with random weights: bert-base's shape, or two narrow layers."""
    if not small:
        make_base_folder(folder)
        return
    from transformers import BertForSequenceClassification

    BertForSequenceClassification(mini_config(len(CLASSES))).save_pretrained(folder)
    mini_tokenizer().save_pretrained(folder)


def store_rows(data: Path, model: Path, cache: Path, max_length: int, target: Path) -> None:
    """Tokenise the train rows, into the cache that fit looks in and into a file for the peers.

    Args:
        data: What ``data.path`` is.
        model: Folder of the model, whose tokenizer counts.
        cache: What ``data.cache_dir`` is.
        max_length: Most pieces of a row.
        target: An .npz file: ids of all rows behind each other, lengths, labels, classes.
    """
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model, local_files_only=True)
    module = THUCNewsDataModule(str(data), max_length=max_length, seed=SEED, cache_dir=str(cache))
    news = module.news
    rows = module.tokens.rows(news.records["train"], news.entry, tokenizer)
    np.savez(
        target,
        ids=_flat(rows),
        lengths=rows.lengths,
        labels=news.class_indices("train"),
        classes=len(news.labels.names),
    )


def _flat(rows: EncodedRows) -> NDArray[np.int32]:
    """Return the ids of the rows behind each other; those of other splits may lie between them."""
    starts = np.repeat(rows.table.starts - np.cumsum(rows.lengths) + rows.lengths, rows.lengths)
    return rows.values[starts + np.arange(len(starts))]


def peer_rows(file: Path) -> tuple[list[dict[str, Any]], int]:
    """Return stored rows as transformers takes them, in memory, and the number of classes."""
    stored = np.load(file)
    ends = np.cumsum(stored["lengths"])[:-1]
    rows = [
        {"input_ids": ids.tolist(), "attention_mask": [1] * len(ids), "labels": int(label)}
        for ids, label in zip(np.split(stored["ids"], ends), stored["labels"], strict=True)
    ]
    return rows, int(stored["classes"])
