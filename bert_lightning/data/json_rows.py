"""JSON objects, one a line or in an array → records."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from bert_lightning.data.files import NumberedLines
from bert_lightning.data.layouts import OBJECT_START, Layout
from bert_lightning.data.records import Fault, Item, Record, item_of, items_of, shown

_START_OF_ARRAY = re.compile(r"\s*\[?")
_EXCERPT = 200  # characters, of which messages show some
_BETWEEN_OBJECTS = re.compile(r"[\s,]*")


def read_objects(lines: NumberedLines, source: str, layout: Layout) -> Iterator[Item]:
    """Read one object a line."""
    return items_of(lines, lambda line, number: _json_item(line, source, number, layout))


def _json_item(line: str, source: str, number: int, layout: Layout) -> Record | Fault:
    try:
        row = json.loads(line.strip())
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
        texts.append("" if isinstance(line, Fault) else line.strip())
    text, decoder = "\n".join(texts), json.JSONDecoder()
    position, number, counted = _end_of_match(_START_OF_ARRAY, text, 0), 1, 0
    is_closed = False
    while (position := _end_of_match(_BETWEEN_OBJECTS, text, position)) < len(text):
        number, counted = number + text.count("\n", counted, position), position
        if text[position] == "]":
            is_closed, position = True, position + 1
        elif is_closed:
            rest = shown(_excerpt(text, position))
            yield Fault(source, number, "nothing after the array", rest)
            position = _next_object(text, position)
            is_closed = position == len(text)
        else:
            try:
                row, position = decoder.raw_decode(text, position)
            except (ValueError, RecursionError) as error:
                found = f"{error} in {shown(_excerpt(text, position))}"
                yield Fault(source, number, layout.shape, found)
                position = _next_object(text, position + 1)
            else:
                yield _object_item(row, source, number, layout)
    if not is_closed:
        number += text.count("\n", counted)
        yield Fault(source, number, "the array to end with ]", "the end of the file")


def _excerpt(text: str, position: int) -> str:
    return text[position : position + _EXCERPT]


def _next_object(text: str, position: int) -> int:
    """Return where the next object begins, or the end of the text."""
    match = OBJECT_START.search(text, position)
    return match.start() if match else len(text)


def _end_of_match(pattern: re.Pattern[str], text: str, position: int) -> int:
    match = pattern.match(text, position)
    return match.end() if match else position
