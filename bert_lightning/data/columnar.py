"""Parquet files and Hugging Face `datasets` → records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bert_lightning.data.columns import Columns, choose_columns, column_reason
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
    import datasets
    from pyarrow import parquet

    try:
        files = [parquet.ParquetFile(path) for path in paths]
    except _damage() as error:
        raise _no_parquet(paths[0], error) from error
    schema = files[0].schema_arrow
    layout = _columns_layout(schema.names, name(paths[0]), columns)
    problems = [
        f"{name(path)}: expected the columns of {name(paths[0])} – found"
        f" {', '.join(file.schema_arrow.names)}"
        for path, file in zip(paths, files, strict=True)
        if not set(_wanted(layout)) <= set(file.schema_arrow.names)
    ]
    if problems:
        raise DataError(problems)
    names = _class_names(datasets.Features.from_arrow_schema(schema), layout)

    def items() -> Iterator[Item]:
        for path, file in zip(paths, files, strict=True):
            batches = _read_batches(path, file, _wanted(layout))
            yield from _column_items(batches, name(path), layout, names)

    if layout.label is not None:
        batches = (
            part
            for path, file in zip(paths, files, strict=True)
            for part in _read_batches(path, file, [str(layout.label)])
        )
        layout = _unless_empty(layout, batches, names)
    return layout, items()


def _read_batches(path: Path, file: Any, columns: list[str]) -> Iterator[dict[str, list[Any]]]:
    try:
        for batch in file.iter_batches(columns=columns):
            yield batch.to_pydict()
    except _damage() as error:
        raise _no_parquet(path, error) from error


def _damage() -> tuple[type[Exception], ...]:
    """Return what Arrow raises for a damaged file."""
    import pyarrow as pa

    return pa.ArrowException, OSError, UnicodeDecodeError


def _no_parquet(path: Path, error: Exception) -> DataError:
    return DataError([f"{path}: expected Parquet – found {' '.join(str(error).split())[:200]}"])


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
    names = _class_names(dataset.features, layout)
    if layout.label is not None:
        labels = dataset.select_columns([layout.label]).iter(1_000)
        layout = _unless_empty(layout, labels, names)
    batches = dataset.select_columns(_wanted(layout)).iter(1_000)
    return layout, _column_items(batches, source, layout, names)


def _class_names(features: Any, layout: Layout) -> tuple[str, ...]:
    """Return the names of a ClassLabel column; none of other columns."""
    return tuple(getattr(features.get(layout.label), "names", None) or ())


def _unless_empty(
    layout: Layout, batches: Iterable[dict[str, list[Any]]], names: Sequence[str]
) -> Layout:
    """Return a layout without label where no row has one, as in test sets of competitions."""
    labels = (label for batch in batches for label in batch[str(layout.label)])
    if any(_name_of_label(label, names) is not None for label in labels):
        return layout
    reason = f"text in {layout.text!r}, no label in {layout.label!r}"
    return replace(layout, label=None, reason=reason)


def _name_of_label(label: Any, names: Sequence[str]) -> Any:
    """Return the name of a ClassLabel, whose -1 means none, or another label as it is."""
    if not names or not isinstance(label, int):
        return label
    return names[label] if 0 <= label < len(names) else None


def load_saved(path: str) -> dict[str, Any]:
    """Load a folder that `datasets` saved, or a dataset of the Hugging Face hub.

    Args:
        path: The folder, or ``hf://name`` or ``hf://name:configuration``. No code that comes with
            a dataset is run.

    Returns:
        A `datasets.Dataset` for each split; one that belongs to no split is called ``all``.

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
    return dict(loaded) if isinstance(loaded, datasets.DatasetDict) else {"all": loaded}


def _columns_layout(names: Sequence[str], where: str, columns: Columns) -> Layout:
    text, label = choose_columns(names, where, columns)
    return Layout("columns", TAB, len(names), text, label, column_reason(text, label))


def _wanted(layout: Layout) -> list[str]:
    return [str(column) for column in (layout.text, layout.label) if column is not None]


def _column_items(
    batches: Iterable[dict[str, list[Any]]], source: str, layout: Layout, names: Sequence[str]
) -> Iterator[Item]:
    number = 0
    for batch in batches:
        texts = batch[str(layout.text)]
        labels = [None] * len(texts) if layout.label is None else batch[str(layout.label)]
        for text, label in zip(texts, labels, strict=True):
            number += 1
            name = _name_of_label(label, names)
            yield item_of(text, name, source, number, layout.label is not None)
