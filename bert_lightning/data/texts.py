"""A file of texts to predict, or standard input → records without labels."""

from __future__ import annotations

import atexit
import os
import shutil
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

LONGEST_TEXT = 1_000_000  # characters; a BERT sees the first or last few hundred
_LONGEST_ROW = 4 * LONGEST_TEXT  # characters of all columns, as they stand in the file
_CHARACTER_BYTES = 10  # at most: in unicode_escape; in UTF-8 and GB18030 four
_LAYOUTS: dict[str, LayoutName] = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl"}


def read_texts(path: Path, encoding: str, columns: Columns) -> tuple[list[Record], int]:
    """Read texts to predict, one record for each line or row, empty ones included.

    No line fills the memory: of a text, `LONGEST_TEXT` characters are kept.

    Args:
        path: ``.json`` and ``.jsonl`` files hold objects, ``.csv`` and ``.tsv`` files have a
            header, ``.parquet`` has columns. Any other file is one text a line.
        encoding: Name of its encoding, or ``auto``.
        columns: Column names that the user has fixed; labels are not looked at.

    Returns:
        The records, and how many of their texts were longer.

    Raises:
        DataError: Unreadable, rows that are no rows or very long, or no column of texts.
    """
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        return _records(read_parquet([path], str, columns)[1], str(path))
    if suffix in (*_LAYOUTS, ".json"):
        return _records(_rows(path, encoding, columns), str(path))
    return _records(_lines(path, encoding), str(path))


def _rows(path: Path, encoding: str, columns: Columns) -> Iterable[Item]:
    if path.suffix.lower() != ".json":  # an array is read whole
        _expect_rows_to_fit(path, encoding)
    lines = sample_lines(path, encoding)
    is_array = lines[0].lstrip().startswith("[")
    wanted = _LAYOUTS.get(path.suffix.lower(), "json" if is_array else "jsonl")
    layout = detect_layout(lines, str(path), wanted, replace(columns, label=None))
    return read_text_file(path, str(path), encoding, replace(layout, label=None))


def _expect_rows_to_fit(path: Path, encoding: str) -> None:
    """Refuse rows that fill the memory; one that is cut is no row any more."""
    if path.stat().st_size <= _LONGEST_ROW:
        return
    lines = numbered_lines(path, encoding, longest=_CHARACTER_BYTES * _LONGEST_ROW + 1)
    problems = [
        f"{path}:{number}: expected at most {_LONGEST_ROW:,} characters in a row – found more"
        for number, line in lines
        if isinstance(line, str) and len(line) > _LONGEST_ROW
    ]
    if problems:
        raise DataError(problems)


def _lines(path: Path, encoding: str) -> Iterable[Item]:
    kept = _CHARACTER_BYTES * LONGEST_TEXT + 1  # one more, which tells that there was more
    source = str(path)
    for number, line in numbered_lines(path, encoding, longest=kept):
        if isinstance(line, Fault):
            yield line
        else:  # blanks count as characters
            text = line if len(line) > LONGEST_TEXT else line.strip()
            yield Record(text, None, source, number)


def _records(items: Iterable[Item], source: str) -> tuple[list[Record], int]:
    records: list[Record] = []
    problems, cut = [], 0
    for item in items:
        if isinstance(item, Fault):
            problems.append(str(item))
        elif item == BLANK_LINE:
            line = records[-1].line + 1 if records else 1
            records.append(Record("", None, source, line))
        elif len(item.text) > LONGEST_TEXT:
            cut += 1
            records.append(replace(item, text=item.text[:LONGEST_TEXT].strip()))
        else:
            records.append(item)
    if problems:
        raise DataError(problems)
    return records, cut


def standard_input_to_file() -> str:
    """Write standard input to a file that is removed when the program ends; return its path."""
    descriptor, name = tempfile.mkstemp(prefix="bert_lightning_standard_input_", suffix=".txt")
    atexit.register(Path(name).unlink, missing_ok=True)
    with os.fdopen(descriptor, "wb") as stream:
        shutil.copyfileobj(sys.stdin.buffer, stream)
    return name
