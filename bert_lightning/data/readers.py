"""A text file → its records, its faults and its blank lines, one after another."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from bert_lightning.data.files import NumberedLines, numbered_lines
from bert_lightning.data.json_rows import read_array, read_objects
from bert_lightning.data.layouts import Layout, split_ends
from bert_lightning.data.records import Fault, Item, Record, item_of, items_of, shown
from bert_lightning.data.tables import read_table
from bert_lightning.errors import DataError

_SAMPLE_LINES = 1_000  # enough to tell TAB from blank, and labels from titles


def read_text_file(path: Path, source: str, encoding: str, layout: Layout) -> Iterator[Item]:
    """Read a text file of any layout; nothing that stands in it goes missing unseen.

    Args:
        path: The file.
        source: What it is called in records and messages.
        encoding: Name of its encoding.
        layout: What `detect_layout` found.

    Raises:
        DataError: The file is unreadable or no text.
    """
    readers = {"lines": _read_lines, "table": read_table, "json": read_array, "jsonl": read_objects}
    lines = numbered_lines(path, encoding, source)
    return readers[layout.form](lines, source, layout)


def sample_lines(path: Path, encoding: str) -> list[str]:
    """Return the first thousand lines of a file that are text and not blank.

    Raises:
        DataError: The file is unreadable, no text, or holds none.
    """
    faults: list[Fault] = []

    def texts() -> Iterator[str]:
        for _, line in numbered_lines(path, encoding):
            if isinstance(line, Fault):
                faults.append(line)
            elif line.strip():
                yield line

    lines = list(islice(texts(), _SAMPLE_LINES))
    if not lines and faults:
        raise DataError(
            list(map(str, faults)), "data.encoding says how it is read; auto tells it from the data"
        )
    if not lines:
        raise DataError([f"{path}: expected lines of text – found none"])
    return lines


def _read_lines(lines: NumberedLines, source: str, layout: Layout) -> Iterator[Item]:
    return items_of(lines, lambda line, number: _line_item(line, source, number, layout))


def _line_item(line: str, source: str, number: int, layout: Layout) -> Record | Fault:
    if layout.columns == 2:
        pair = split_ends(line, layout.separator, layout.label == 0)
        if pair is None:
            return Fault(source, number, layout.shape, shown(line))
        return item_of(*pair, source, number)
    cells = line.split(layout.separator)
    if len(cells) != layout.columns:
        found = f"{len(cells)}: {shown(line)}"
        return Fault(source, number, layout.shape, found)
    return item_of(cells[int(layout.text)], cells[int(layout.label or 0)], source, number)
