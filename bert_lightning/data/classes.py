"""Class files → names of the classes, and what the labels in the data stand for.

Takes what people keep beside their data: one name a line, ``id name english`` columns, a printed
Python list, a JSON list or object, or CLUE's JSON lines.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bert_lightning.data.files import numbered_lines
from bert_lightning.data.records import Fault
from bert_lightning.errors import DataError

_CLASS_FILE = re.compile(
    r"(?:class|classes|label|labels)(?:[\W_\d].*)?\.(?:txt|json)", re.IGNORECASE
)
_ID_KEYS = ("id", "label", "label_id", "index")
_NAME_KEYS = ("label_desc", "label_des", "name", "label_name", "class")


@dataclass(frozen=True)
class ClassList:
    """Names of the classes in order.

    Args:
        names: One a class.
        meanings: Other labels that the files may hold: ids and second names, with the name that
            each stands for. Empty where ids, if there are any, count the names from 0.
        source: Where the names come from, for messages.
        others: Class files beside it that list the classes in other words or in another order.
    """

    names: list[str]
    meanings: dict[str, str] = field(default_factory=dict)
    source: str = "data.class_names"
    others: dict[str, list[str]] = field(default_factory=dict)


def is_class_file(path: Path) -> bool:
    """Tell by its name whether a file lists the classes: class.txt, labels.json and the like."""
    return _CLASS_FILE.fullmatch(path.name) is not None


def find_class_list(folder: Path, encoding: str, data: Collection[Path] = ()) -> ClassList | None:
    """Read the class file of a folder, or return None if there is none.

    The shortest name is taken, class.txt before class_old.txt; further ones are only compared.

    Args:
        folder: The folder.
        encoding: Name of an encoding, or ``auto``.
        data: Files of the data, which are none whatever they are called.

    Raises:
        DataError: It cannot be read or holds no names.
    """
    listed = (
        file
        for file in folder.iterdir()
        if is_class_file(file) and file.is_file() and file not in data
    )
    files = sorted(listed, key=lambda file: (len(file.stem), file))
    if not files:
        return None
    first = read_class_file(files[0], encoding)
    others = {}
    for file in files[1:]:
        with suppress(DataError):  # whatever it is, it was not asked for
            names = read_class_file(file, encoding).names
            if names != first.names:
                others[file.name] = names
    return ClassList(first.names, first.meanings, first.source, others)


def read_class_file(file: Path, encoding: str) -> ClassList:
    """Read one class file.

    Raises:
        DataError: It cannot be read or holds no names.
    """
    numbered = list(numbered_lines(file, encoding))
    faults = [str(line) for _, line in numbered if isinstance(line, Fault)]
    if faults:
        raise DataError(faults)
    lines = [str(line).strip() for _, line in numbered if str(line).strip()]
    pairs = _pairs_of("\n".join(lines), lines)
    names = [name for _, name, *_ in pairs]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated or not names:
        found = f"{', '.join(repeated)} several times" if repeated else "no list of a known form"
        raise DataError(
            [f"{file}: expected one list of class names, each once – found {found}"],
            "one name a line, in the order of the ids",
        )
    others = [
        (other, name)
        for first, name, *more in pairs
        for other in (first, *more)
        if other is not None
    ]
    counts = Counter(other for other, _ in set(others))
    meanings = {other: name for other, name in others if counts[other] == 1}
    return ClassList(names, meanings, file.name)


def _pairs_of(text: str, lines: Sequence[str]) -> list[Any]:
    """Return (id or None, name, second names …) of each class."""
    if text.startswith("["):
        return _listed(text)
    if text.startswith("{"):
        return _json_pairs(text, lines)
    separator = "\t" if all("\t" in line for line in lines) else None
    columns = [[cell.strip() for cell in line.split(separator)] for line in lines]
    is_wide = all(len(row) > 1 for row in columns)
    is_named_first = is_wide and len({row[0] for row in columns}) == len(columns)
    for row in columns if is_named_first and _are_ids([row[-1] for row in columns]) else []:
        row.insert(0, row.pop())  # a name and then its id
    if is_wide and _are_ids([row[0] for row in columns]):
        return sorted((tuple(row) for row in columns), key=lambda row: int(row[0]))
    return [(None, line) for line in lines]


def _are_ids(cells: Sequence[str]) -> bool:
    """Tell whether cells are the numbers from 0 in some order."""
    return sorted(cells) == sorted(str(number) for number in range(len(cells)))


def _listed(text: str) -> list[Any]:
    try:
        names = ast.literal_eval(text)  # JSON lists of strings are Python lists, too
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return []
    if isinstance(names, list) and all(isinstance(name, str) for name in names):
        return [(None, name) for name in names]
    return []


def _json_pairs(text: str, lines: Sequence[str]) -> list[Any]:
    try:
        if len(lines) > 1 and lines[1].startswith("{"):
            return [_row_pair(json.loads(line)) for line in lines]
        return _object_pairs(json.loads(text))
    except (ValueError, TypeError, StopIteration, RecursionError):
        return []


def _row_pair(row: dict[str, Any]) -> tuple[str | None, str]:
    """Read a line of CLUE's labels.json, whose label is a number beside its name."""
    key = next(key for key in (*_NAME_KEYS, *_ID_KEYS) if key in row)
    number = next((row[other] for other in _ID_KEYS if other in row and other != key), None)
    return None if number is None else str(number), str(row[key])


def _object_pairs(mapping: dict[str, Any]) -> list[Any]:
    """Read ``{"体育": 0}`` and ``{"0": "体育"}``, in the order of the ids."""
    if all(isinstance(value, str) and not value.isdigit() for value in mapping.values()):
        items = list(mapping.items())
    else:
        items = [(str(value), key) for key, value in mapping.items()]
    if len(mapping) == 1 or not all(number.isdigit() for number, _ in items):
        return []
    return sorted(items, key=lambda item: int(item[0]))
