"""What one news item is, before any tokenizer has seen it.

A reader yields `Record`s; a `LabelTable` turns their label into a class index and keeps the order
of the class names, which is stored in every checkpoint.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from bert_lightning.errors import DataError

Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = ("train", "val", "test")


@dataclass(frozen=True, slots=True)
class Record:
    """One news item.

    Args:
        text: The title or text, without the label and without surrounding blanks.
        label: What stands in the file (a class name or an id), or None where there is none.
        source: Name of the file it came from, for messages.
        line: 1-based line number in that file.
    """

    text: str
    label: str | None
    source: str
    line: int

    @property
    def where(self) -> str:
        """``file:line``, the form of every message about this record."""
        return f"{self.source}:{self.line}"


@dataclass(frozen=True, slots=True)
class Fault:
    """A row that is no record.

    Args:
        source: Name of the file.
        line: 1-based line number in it, 0 where the file as a whole is meant.
        expected: What the row should have been.
        found: What stands there.
    """

    source: str
    line: int
    expected: str
    found: str

    def __str__(self) -> str:
        where = f"{self.source}:{self.line}" if self.line else self.source
        return f"{where}: expected {self.expected} – found {self.found}"


class LabelTable:
    """Class names in their fixed order, and the way from a label in a file to a class index.

    Args:
        names: Class names; position is the class index.
        id_names: Where the files hold ids (``title<TAB>id`` beside a ``class.txt``): the name that
            each id stands for. None where the files hold names.

    Raises:
        DataError: Fewer than two names, an empty name, or one name twice.
    """

    def __init__(self, names: Sequence[str], id_names: Sequence[str] | None = None) -> None:
        counts = Counter(names)
        problems = [
            f"class names: expected each name once – found {name!r} {count} times"
            for name, count in counts.items()
            if count > 1
        ]
        if len(counts) < 2:
            problems.append(f"class names: expected two or more – found {list(names)}")
        if not all(name.strip() for name in names):
            problems.append(f"class names: expected no empty name – found {list(names)}")
        if problems:
            raise DataError(problems, "fix class.txt or data.class_names")
        self.names = list(names)
        self.id_names = None if id_names is None else list(id_names)
        index = {name: position for position, name in enumerate(self.names)}
        if self.id_names is not None:
            index = {str(number): index[name] for number, name in enumerate(self.id_names)}
        self._index = index

    def __len__(self) -> int:
        return len(self.names)

    def index(self, label: str | None) -> int | None:
        """Return the class index of a label as it stands in the file, or None if unknown."""
        return None if label is None else self._index.get(label)

    def in_order_of(self, names: Sequence[str]) -> LabelTable:
        """Return a table with the same labels in the files and the class order of ``names``."""
        return LabelTable(names, self.id_names)

    @property
    def expected(self) -> str:
        """What a label may be, for messages."""
        if self.id_names is not None:
            return f"a class id from 0 to {len(self.id_names) - 1}"
        return f"one of {', '.join(self.names)}"
