"""JSON objects, one a line or in an array → records."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from bert_lightning.data.files import NumberedLines
from bert_lightning.data.layouts import Layout
from bert_lightning.data.records import BLANK_LINE, Fault, Item, Record, item_of, shown

_NEXT_OBJECT = re.compile(r"\{\s*\"")
_BEGINNING = re.compile(r"\s*\[")
_BETWEEN_OBJECTS = re.compile(r"[\s,]*")


def read_objects(lines: NumberedLines, source: str, layout: Layout) -> Iterator[Item]:
    """Read one object a line."""
    for number, line in lines:
        if isinstance(line, Fault):
            yield line
        elif not line.strip():
            yield BLANK_LINE
        else:
            yield _json_item(line, source, number, layout)


def _json_item(line: str, source: str, number: int, layout: Layout) -> Record | Fault:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        return Fault(source, number, layout.shape, f"{error} in {shown(line)}")
    return _object_item(row, source, number, layout)


def _object_item(row: Any, source: str, number: int, layout: Layout) -> Record | Fault:
    if not isinstance(row, dict) or layout.text not in row:
        return Fault(source, number, layout.shape, shown(str(row)))
    return item_of(
        row[layout.text], row.get(layout.label), source, number, layout.label is not None
    )


def read_array(lines: NumberedLines, source: str, layout: Layout) -> Iterator[Item]:
    """Read one array of objects; after a damaged object it goes on with the next."""
    texts = []
    for _, line in lines:
        if isinstance(line, Fault):
            yield line
        texts.append("" if isinstance(line, Fault) else line)
    yield from _array_items("\n".join(texts), source, layout)


def _array_items(text: str, source: str, layout: Layout) -> Iterator[Item]:
    decoder, number, counted = json.JSONDecoder(), 1, 0
    position = _end_of_match(_BEGINNING, text, 0)
    if not position:
        yield Fault(source, 1, "a JSON array, which begins with [", shown(text))
    while position >= 0:
        position = _end_of_match(_BETWEEN_OBJECTS, text, position)
        number, counted = number + text.count("\n", counted, position), position
        if position == len(text):
            yield Fault(source, number, "the array to end with ]", "the end of the file")
            return
        if text[position] == "]":
            rest = text[position + 1 :].strip()
            if rest:
                yield Fault(source, number, "nothing after the array", shown(rest))
            position = _next_object(text, position)  # of another array that was pasted there
            continue
        try:
            row, position = decoder.raw_decode(text, position)
        except (ValueError, RecursionError) as error:
            yield Fault(source, number, layout.shape, f"{error} in {shown(text[position:])}")
            position = _next_object(text, position)
        else:
            yield _object_item(row, source, number, layout)


def _next_object(text: str, position: int) -> int:
    """Return where the next object begins, or -1."""
    match = _NEXT_OBJECT.search(text, position + 1)
    return match.start() if match else -1


def _end_of_match(pattern: re.Pattern[str], text: str, position: int) -> int:
    match = pattern.match(text, position)
    return match.end() if match else position
