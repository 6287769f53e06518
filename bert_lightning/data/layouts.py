"""Sample lines → how a file is laid out: what parts text and label, and which comes first.

A label is told by being one of few: where a line has two ends, the label's end is the one whose
values are known classes, or else repeat most. Columns with names are told by their names. What was
taken is said, with the reason, and each choice can be fixed in YAML.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from bert_lightning.data.columns import (
    BY_NAME,
    Columns,
    choose_columns,
    column_reason,
    is_header,
    refuse_several_labels,
)
from bert_lightning.errors import DataError

LayoutName = Literal[
    "auto",
    "text_tab_label",
    "label_tab_text",
    "text_blank_label",
    "label_blank_text",
    "text_comma_label",
    "label_comma_text",
    "text_bang_label",
    "label_bang_text",
    "toutiao",
    "csv",
    "tsv",
    "json",
    "jsonl",
]
BLANK, TAB, COMMA, BANG, BAR_COMMA_BAR = None, "\t", ",", "_!_", "|,|"
_SEPARATORS: dict[str, str | None] = {"tab": TAB, "blank": BLANK, "comma": COMMA, "bang": BANG}
_SEPARATOR_NAMES = {TAB: "TAB", BLANK: "blank", COMMA: "comma", BANG: "_!_", BAR_COMMA_BAR: "|,|"}
_TOUTIAO = {"separator": BANG, "columns": 5, "text": 3, "label": 2}
_KNOWN_SHARE = 0.5  # of rows whose label is a known class
_LONGEST_FIELD = 2**31 - 1  # the csv module's own limit is 131,072 characters
OBJECT_START = re.compile(r"(?<!:)(?<!: )\{\s*\"")  # of an object that is no value in another one
_JSON_LINE = re.compile(r"\s*(?:[\[{]\s*(?:[\"{]|$)|[\]}],?\s*$|\"\w+\"\s*:|.*\}\s*,\s*\{\s*\")")
_MOST_KINDS = 20  # different labels are always plausible; more must repeat: twice on average


@dataclass(frozen=True)
class Layout:
    """How a file holds texts and labels.

    Args:
        form: ``lines`` of text and label, ``table`` with a header, ``json`` array, ``jsonl``, or
            ``columns`` of Parquet and datasets.
        separator: What parts the fields of a line; None for blanks.
        columns: Number of fields of a line.
        text: Position of the text in a line (from 0), or its key in JSON.
        label: The same of the label; None where the file has none.
        reason: Why it was taken, for people.
    """

    form: Literal["lines", "table", "json", "jsonl", "columns"]
    separator: str | None
    columns: int
    text: int | str
    label: int | str | None
    reason: str

    @property
    def shape(self) -> str:
        """What a row looks like, for messages."""
        if self.form == "json":
            return f"a JSON array of objects with {self._keys}"
        if self.form == "jsonl":
            return f"one JSON object a line with {self._keys}"
        if self.form == "columns":
            return f"{self.columns} columns"
        name = _SEPARATOR_NAMES[self.separator]
        if self.columns == 2:
            fields = ["title", "label"] if self.text == 0 else ["label", "title"]
            if self.label is None:
                fields = ["title", "…"] if self.text == 0 else ["…", "title"]
            return f"a {fields[0]}, a {name} and a {fields[1]}".replace("a …", "another column")
        return f"{self.columns} fields parted by {name}"

    @property
    def _keys(self) -> str:
        return f"{self.text!r}" if self.label is None else f"{self.text!r} and {self.label!r}"

    def __str__(self) -> str:
        header = " under a header" if self.form == "table" else ""
        return f"{self.shape}{header} ({self.reason})"


def detect_layout(
    lines: Sequence[str],
    name: str,
    wanted: LayoutName = "auto",
    columns: Columns = BY_NAME,
    known: Collection[str] = (),
) -> Layout:
    """Tell the layout of a file.

    Args:
        lines: Its first thousand or so lines that are not blank.
        name: What it is called in errors.
        wanted: ``auto``, or what the user says it is.
        columns: Column names that the user says.
        known: Labels that are known to be classes; may be empty.

    Raises:
        DataError: No label or text is to be found.
    """
    forced = None if wanted == "auto" else wanted
    if forced in ("json", "jsonl") or (forced is None and _is_json(lines)):
        return _json_layout(lines, name, forced, columns)
    if forced in ("csv", "tsv"):
        return _table_layout(lines, TAB if forced == "tsv" else COMMA, name, columns)
    if forced == "toutiao":
        return Layout("lines", **_TOUTIAO, reason="as data.layout says")  # type: ignore[arg-type]
    if forced:
        first, middle, _ = forced.split("_")
        return _ends(_SEPARATORS[middle], first == "label", "as data.layout says")
    for separator in (TAB, BAR_COMMA_BAR, COMMA):
        if is_header(_fields(lines[0], separator), columns):
            return _table_layout(lines, separator, name, columns)
    if columns.text or columns.label:
        raise DataError(
            [
                f"{name}:1: expected a header with {columns.text or columns.label!r}"
                f" – found {lines[0][:60]!r}"
            ],
            "data.text_column and data.label_column name columns of a header or keys of JSON",
        )
    return _lines_layout(lines, name, known)


def _lines_layout(rows: Sequence[str], name: str, known: Collection[str]) -> Layout:
    lines = [row.strip() for row in rows]  # a TAB at the end parts nothing
    if _share(lines, BANG) >= 0.5:
        fields = sorted(line.count(BANG) + 1 for line in lines)[len(lines) // 2]
        if fields >= 4:
            reason = f"{fields} fields, as in toutiao's files"
            return Layout("lines", **{**_TOUTIAO, "columns": fields}, reason=reason)  # type: ignore[arg-type]
    shares = ((BANG, 0.5), (TAB, 0.5), (COMMA, 0.9), (BLANK, 0.5))
    separators = [separator for separator, least in shares if _share(lines, separator) >= least]
    layouts = [_known_layout(lines, separator, known) for separator in separators if known]
    for separator in separators:
        layouts.append(_repeating_layout(lines, separator))
        if separator in (BANG, TAB):
            break
    found = next(filter(None, layouts), None)
    if found:
        return found
    raise DataError(
        [
            f"{name}: expected a title and a label in each line – found no end of the lines that"
            f" repeats as a label does, e.g. {lines[0][:60]!r}"
        ],
        "if the classes are rare, list them in class.txt or data.class_names, or say what the"
        " lines are in data.layout; texts without labels are for predict",
    )


def _labels_at_ends(lines: Sequence[str], separator: str | None) -> dict[bool, list[str]]:
    return {
        first: [pair[1] for line in lines if (pair := split_ends(line, separator, first))]
        for first in (False, True)
    }


def _known_layout(
    lines: Sequence[str], separator: str | None, known: Collection[str]
) -> Layout | None:
    """Return the layout whose labels are known classes, if those of one end are."""
    shares = {
        first: sum(label in known for label in found) / len(found)
        for first, found in _labels_at_ends(lines, separator).items()
    }
    first = shares[True] > shares[False]
    if shares[first] < _KNOWN_SHARE:
        return None
    return _ends(separator, first, f"{shares[first]:.0%} of its labels are known classes")


def _repeating_layout(lines: Sequence[str], separator: str | None) -> Layout | None:
    """Return the layout whose label stands at the end that repeats more, if it is like a label."""
    labels = _labels_at_ends(lines, separator)
    kinds = {first: len(set(found)) for first, found in labels.items()}
    first = _is_label_first(labels, kinds)
    if kinds[first] > max(_MOST_KINDS, len(labels[first]) / 2):
        return None
    ends = ("end", "beginning")
    return _ends(
        separator,
        first,
        f"{kinds[first]} different values at the {ends[first]} of the first"
        f" {len(labels[first])} lines, {kinds[not first]} at the {ends[not first]}",
    )


def _is_label_first(labels: dict[bool, list[str]], kinds: dict[bool, int]) -> bool:
    """Tell from the values at the ends of lines, and how many kinds there are, which is a label."""
    if kinds[True] == kinds[False]:
        is_id = {first: any(map(str.isdecimal, found)) for first, found in labels.items()}
        return is_id[True] and not is_id[False]
    first = kinds[True] < kinds[False]
    if kinds[first] == 1 and 2 * kinds[not first] <= len(labels[not first]):
        return not first  # a word that all titles have; rows sorted by class have titles there
    return first


def _ends(separator: str | None, label_first: bool, reason: str) -> Layout:
    return Layout("lines", separator, 2, int(label_first), int(not label_first), reason)


def labels_in(lines: Sequence[str], layout: Layout) -> set[str]:
    """Return the labels of lines that hold a text and a label; none of other layouts."""
    if layout.form != "lines" or layout.columns != 2:
        return set()
    pairs = (split_ends(line, layout.separator, layout.label == 0) for line in lines)
    return {pair[1] for pair in pairs if pair}


def split_ends(line: str, separator: str | None, label_first: bool) -> tuple[str, str] | None:
    """Return (text, label) of a line with the label at one end, or None without a separator."""
    row = line.rstrip() if separator else line.strip()  # TABs at the end are no labels
    split = row.split if label_first else row.rsplit
    parts = split(separator, maxsplit=1)
    if len(parts) < 2:
        return None
    first, second = (_unquoted(part.strip(), separator) for part in parts)
    return (second, first) if label_first else (first, second)


def _unquoted(text: str, separator: str | None) -> str:
    """Take the quotes of CSV off a text that stands in them as a whole, inner ones doubled."""
    inner = text[1:-1]
    is_cell = separator == COMMA and len(text) > 1 and text[0] == text[-1] == '"'
    if is_cell and '"' not in inner.replace('""', ""):
        return inner.replace('""', '"')
    return text


def _share(lines: Sequence[str], separator: str | None) -> float:
    holding = sum(
        separator in line if separator else len(line.split(maxsplit=1)) > 1 for line in lines
    )
    return holding / len(lines)


def _fields(line: str, separator: str) -> list[str]:
    cells = quoted_cells(line, separator)
    return [cell.strip() for cell in (line.split(separator) if cells is None else cells)]


def quoted_cells(line: str, separator: str) -> list[str] | None:
    """Return the cells of a row that has quotes as CSV has them; None if it has not.

    Args:
        line: The row; a cell in quotes may hold line ends.
        separator: What parts the cells.
    """
    if '"' not in line or separator not in (COMMA, TAB):
        return None
    csv.field_size_limit(_LONGEST_FIELD)
    try:
        rows = list(csv.reader([line], delimiter=separator, strict=True))
    except csv.Error:  # a quote that is not closed, or goes on after it was
        return None
    return rows[0] if len(rows) == 1 else None


def _table_layout(lines: Sequence[str], separator: str, name: str, columns: Columns) -> Layout:
    header = _fields(lines[0], separator)
    text, label = choose_columns(header, f"{name}:1", columns)
    place = None if label is None else header.index(label)
    if place is not None:
        rows = [cells for line in lines[1:] if len(cells := _fields(line, separator)) > place]
        refuse_several_labels([cells[place] for cells in rows], name)
    reason = column_reason(text, label)
    return Layout("table", separator, len(header), header.index(text), place, reason)


def _is_json(lines: Sequence[str]) -> bool:
    if re.match(r"\s*\[\s*\{\s*\"", lines[0]):
        return True
    # the first line alone may be damaged
    return 2 * sum(_JSON_LINE.match(line) is not None for line in lines) > len(lines)


def _json_layout(lines: Sequence[str], name: str, forced: str | None, columns: Columns) -> Layout:
    rows = list(_line_sample(lines))
    starts_array = lines[0].lstrip().startswith("[") or 2 * len(rows) < len(lines)
    is_array = forced == "json" if forced else starts_array
    if is_array:
        rows = list(_array_sample("\n".join(map(str.strip, lines))))
    if not rows:
        raise DataError([f"{name}: expected JSON objects – found {lines[0][:60]!r}"])
    keys = list(dict.fromkeys(key for row in rows for key in row))
    text, label = choose_columns(keys, name, columns)
    if label is not None:
        refuse_several_labels([str(row.get(label, "")) for row in rows], name)
    reason = column_reason(text, label)
    return Layout("json" if is_array else "jsonl", None, len(keys), text, label, reason)


def _array_sample(text: str) -> Iterable[dict[str, Any]]:
    decoder, position = json.JSONDecoder(), 0
    while start := OBJECT_START.search(text, position):
        try:
            row, position = decoder.raw_decode(text, start.start())
            yield row
        except (ValueError, RecursionError):
            position = start.end()


def _line_sample(lines: Sequence[str]) -> Iterable[dict[str, Any]]:
    for line in lines:
        try:
            row = json.loads(line.strip())
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            yield row
