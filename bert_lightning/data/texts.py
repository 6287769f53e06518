"""A file of texts to predict, or standard input → records without labels."""

from __future__ import annotations

import atexit
import os
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from bert_lightning.data.columnar import read_parquet
from bert_lightning.data.columns import Columns
from bert_lightning.data.files import numbered_lines
from bert_lightning.data.layouts import LayoutName, detect_layout
from bert_lightning.data.readers import read_text_file, sample_lines
from bert_lightning.data.records import BLANK_LINE, Fault, Item, Record
from bert_lightning.errors import DataError

_LAYOUTS: dict[str, LayoutName] = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl"}


def read_texts(path: Path, encoding: str, columns: Columns) -> list[Record]:
    """Read texts to predict, one record for each line or row, empty ones included.

    Args:
        path: ``.json`` and ``.jsonl`` files hold objects, ``.csv`` and ``.tsv`` files have a
            header, ``.parquet`` has columns. Any other file is one text a line.
        encoding: Name of its encoding, or ``auto``.
        columns: Column names that the user has fixed; labels are not looked at.

    Raises:
        DataError: Unreadable, rows that are no rows, or no column of texts.
    """
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        return _records(read_parquet([path], str, columns)[1], str(path))
    if suffix in (*_LAYOUTS, ".json"):
        return _records(_rows(path, encoding, columns), str(path))
    return _records(_lines(path, encoding), str(path))


def _rows(path: Path, encoding: str, columns: Columns) -> Iterable[Item]:
    lines = sample_lines(path, encoding)
    is_array = lines[0].lstrip().startswith("[")
    wanted = _LAYOUTS.get(path.suffix.lower(), "json" if is_array else "jsonl")
    layout = detect_layout(lines, str(path), wanted, replace(columns, label=None))
    return read_text_file(path, str(path), encoding, replace(layout, label=None))


def _lines(path: Path, encoding: str) -> Iterable[Item]:
    for number, line in numbered_lines(path, encoding):
        yield line if isinstance(line, Fault) else Record(line.strip(), None, str(path), number)


def _records(items: Iterable[Item], source: str) -> list[Record]:
    records: list[Record] = []
    problems = []
    for item in items:
        if isinstance(item, Fault):
            problems.append(str(item))
        elif item == BLANK_LINE:
            line = records[-1].line + 1 if records else 1
            records.append(Record("", None, source, line))
        else:
            records.append(item)
    if problems:
        raise DataError(problems)
    return records


def standard_input_to_file() -> str:
    """Write standard input to a file that is removed when the program ends; return its path."""
    descriptor, name = tempfile.mkstemp(prefix="bert_lightning_", suffix=".txt")
    atexit.register(Path(name).unlink, missing_ok=True)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(sys.stdin.buffer.read())
    return name
