"""Parquet files and Hugging Face `datasets` → records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bert_lightning.data.columns import Columns, choose_columns
from bert_lightning.data.layouts import TAB, Layout
from bert_lightning.data.records import Item, item_of
from bert_lightning.errors import DataError

HUB_PREFIX = "hf://"


def read_parquet(
    paths: Sequence[Path], name: Callable[[Path], str], columns: Columns
) -> tuple[Layout, Iterator[Item]]:
    """Return the layout of Parquet files of one split and their rows.

    Args:
        paths: The files, in order.
        name: What a file is called in records and messages.
        columns: Column names that the user has fixed.

    Raises:
        DataError: Not Parquet, or without a text column.
    """
    import pyarrow as pa
    from pyarrow import parquet

    @contextmanager
    def refusing(path: Path) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            reason = " ".join(str(error).split())[:200]
            raise DataError([f"{path}: expected Parquet – found {reason}"]) from error

    files = []
    for path in paths:
        with refusing(path):
            files.append(parquet.ParquetFile(path))
    layouts = [
        _columns_layout(file.schema_arrow.names, name(path), columns)
        for path, file in zip(paths, files, strict=True)
    ]

    def items() -> Iterator[Item]:
        for path, file, layout in zip(paths, files, layouts, strict=True):
            with refusing(path):
                batches = file.iter_batches(columns=_wanted(layout))
                rows = (batch.to_pydict() for batch in batches)
                yield from _column_items(rows, name(path), layout)

    return layouts[0], items()


def read_dataset(dataset: Any, source: str, columns: Columns) -> tuple[Layout, Iterator[Item]]:
    """Return the layout of a split of a Hugging Face `datasets.Dataset` and its rows.

    Args:
        dataset: The split.
        source: What it is called in records and messages.
        columns: Column names that the user has fixed.

    Raises:
        DataError: It has no text column.
    """
    layout = _columns_layout(dataset.column_names, source, columns)
    feature = dataset.features.get(layout.label)
    names = getattr(feature, "names", None)  # of a ClassLabel

    def batches() -> Iterator[dict[str, list[Any]]]:
        for batch in dataset.select_columns(_wanted(layout)).iter(1_000):
            if names:
                ids = batch[layout.label]
                batch[layout.label] = [names[i] if i is not None and i >= 0 else None for i in ids]
            yield batch

    return layout, _column_items(batches(), source, layout)


def load_saved(path: str) -> dict[str, Any]:
    """Load a folder that `datasets` saved, or a dataset of the Hugging Face hub.

    Args:
        path: The folder, or ``hf://name`` or ``hf://name:configuration``. No code that comes with
            a dataset is run.

    Returns:
        A `datasets.Dataset` for each split.

    Raises:
        DataError: Not there, or no answer from the hub.
    """
    import datasets

    try:
        if path.startswith(HUB_PREFIX):
            name, _, configuration = path.removeprefix(HUB_PREFIX).partition(":")
            loaded = datasets.load_dataset(name, configuration or None)
        else:
            loaded = datasets.load_from_disk(path)
    except Exception as error:  # the hub, its client and Arrow each raise their own kinds
        reason = " ".join(str(error).split())[:200]
        raise DataError(
            [f"data.path: expected a dataset at {path} – found {reason}"],
            "datasets of the hub are hf://owner/name or hf://owner/name:configuration; HF_ENDPOINT"
            " names a mirror",
        ) from error
    return dict(loaded) if isinstance(loaded, datasets.DatasetDict) else {"train": loaded}


def _columns_layout(names: Sequence[str], where: str, columns: Columns) -> Layout:
    text, label = choose_columns(names, where, columns)
    return Layout("table", TAB, len(names), text, label, f"columns {', '.join(names)}")


def _wanted(layout: Layout) -> list[str]:
    return [str(column) for column in (layout.text, layout.label) if column is not None]


def _column_items(
    batches: Iterable[dict[str, list[Any]]], source: str, layout: Layout
) -> Iterator[Item]:
    number = 0
    for batch in batches:
        texts = batch[str(layout.text)]
        labels = [None] * len(texts) if layout.label is None else batch[str(layout.label)]
        for text, label in zip(texts, labels, strict=True):
            number += 1
            yield item_of(text, label, source, number, layout.label is not None)
