"""What one news item is, before any tokenizer has seen it.

A reader yields an `Item` for all that stands in a file: a `Record`, a `Fault` for a row that is
none, or `BLANK_LINE`. A `LabelTable` turns labels into class indices and keeps the order of the
class names, which is stored in every checkpoint.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

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

    @property
    def place(self) -> str:
        """``file:line``, or the file alone."""
        return f"{self.source}:{self.line}" if self.line else self.source

    def __str__(self) -> str:
        return f"{self.place}: expected {self.expected} – found {self.found}"


BLANK_LINE: Literal["blank line"] = "blank line"
Item = Record | Fault | Literal["blank line"]
_SHOWN_CHARACTERS = 60


def item_of(
    text: Any, label: Any, source: str, line: int, is_labelled: bool = True
) -> Record | Fault:
    """Return the record of a text and a label as they stand in a file, or what is wrong with them.

    Args:
        text: The text, or what a JSON file has in its place.
        label: Its label, the same way.
        source: Name of the file.
        line: 1-based line or row number in it.
        is_labelled: False where the file has no labels at all.
    """
    words = plain_text(text).strip()
    if not is_labelled:
        return Record(words, None, source, line)
    if not words:
        return Fault(source, line, "a title before the label", f"only the label {label!r}")
    name = _plain_label(label)
    if name is None:
        return Fault(source, line, "one label", f"{label!r}, {shown(words)}")
    return Record(words, name, source, line)


def items_of(
    lines: Iterable[tuple[int, str | Fault]], read: Callable[[str, int], Item]
) -> Iterator[Item]:
    """Yield what stands in each line of a file in which a line is a row.

    Args:
        lines: Number and text of each line; a fault where it is no text.
        read: Makes an item of a line that is not blank, and its number.
    """
    for number, line in lines:
        if isinstance(line, Fault):
            yield line
        elif not line.strip():
            yield BLANK_LINE
        else:
            yield read(line, number)


def plain_text(value: Any) -> str:
    """Return a value as text that a UTF-8 file can hold; JSON can spell half a surrogate pair."""
    text = "" if value is None else str(value)
    return (
        text
        if text.isascii()
        else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    )


def _plain_label(value: Any) -> str | None:
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if value is None or isinstance(value, (list, dict)):
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # 3.0, as tables with gaps store 3
    return plain_text(value).strip() or None


def shown(text: str) -> str:
    """Return the start of a text in quotes, for messages."""
    return repr(text.strip()[:_SHOWN_CHARACTERS])


class LabelTable:
    """Class names in their fixed order, and the way from a label in a file to a class index.

    Args:
        names: Class names; position is the class index.
        meanings: Where the files hold other labels than the names (``title<TAB>id`` beside a
            class file): the name that each stands for. None where the files hold names.

    Raises:
        DataError: Fewer than two names, an empty name, or one name twice.
    """

    def __init__(self, names: Sequence[str], meanings: Mapping[str, str] | None = None) -> None:
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
        self.meanings = None if meanings is None else dict(meanings)
        index = {name: position for position, name in enumerate(self.names)}
        if self.meanings is not None:
            index = {label: index[name] for label, name in self.meanings.items()}
        self._index = index

    def __len__(self) -> int:
        return len(self.names)

    def index(self, label: str | None) -> int | None:
        """Return the class index of a label as it stands in the file, or None if unknown."""
        return None if label is None else self._index.get(label)

    def in_order_of(self, names: Sequence[str]) -> LabelTable:
        """Return a table with the same labels in the files and the class order of ``names``."""
        return LabelTable(names, self.meanings)

    @property
    def expected(self) -> str:
        """What a label may be, for messages."""
        labels = self.names if self.meanings is None else list(self.meanings)
        if labels == [str(number) for number in range(len(labels))]:
            return f"a class id from 0 to {len(labels) - 1}"
        return f"one of {', '.join(labels)}"
