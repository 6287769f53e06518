"""Names of columns → which holds the text and which the label.

Tells the columns of a table, of JSON objects and of Parquet by the names that people give them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from bert_lightning.errors import DataError

_TEXT_COLUMNS = (
    *("text", "title", "sentence", "text_a", "content", "news", "headline", "input", "ques"),
    *("question", "query", "review", "标题", "新闻标题", "文本", "内容", "正文", "新闻", "句子"),
)
_LABEL_COLUMNS = (  # names before ids, so that CLUE's label_desc goes before its numeric label
    *("label_desc", "label_des", "label_name", "class_name", "category_name", "category", "class"),
    *("label", "labels", "target", "topic", "channel", "类别", "标签", "分类", "栏目", "频道"),
    *("label_id", "class_id"),
)
_SEVERAL_LABELS = re.compile(r"[^,;|，；][,;|，；][^,;|，；]")
_MOST_KINDS = 20  # a few names of classes may hold a comma


@dataclass(frozen=True)
class Columns:
    """Names of columns that the user has fixed; None to tell them by their names."""

    text: str | None = None
    label: str | None = None


BY_NAME = Columns()


def is_header(cells: Sequence[str], columns: Columns) -> bool:
    """Tell a header: a column that the user named, a text's and a label's name, or plain words."""
    names = {cell.lower() for cell in cells}
    if {columns.text, columns.label} & set(cells):
        return True
    has_text, has_label = (bool(names & set(wanted)) for wanted in (_TEXT_COLUMNS, _LABEL_COLUMNS))
    is_plain = all(re.fullmatch(r"[A-Za-z_]\w{0,29}", cell, re.ASCII) for cell in cells)
    return (has_text and has_label) or (has_text and is_plain)


def choose_columns(names: Sequence[str], where: str, columns: Columns) -> tuple[str, str | None]:
    """Tell the columns of text and label by their names.

    Args:
        names: All columns there are.
        where: What to call them in errors.
        columns: Names that the user has fixed.

    Returns:
        Name of the text column and of the label column, None if there is no label.

    Raises:
        DataError: A column that the user named is missing, or none is like a text.
    """
    problems = [
        f"{where}: expected the column {wanted!r} of {key} – found {', '.join(names)}"
        for key, wanted in (
            ("data.text_column", columns.text),
            ("data.label_column", columns.label),
        )
        if wanted is not None and wanted not in names
    ]
    if problems:
        raise DataError(problems)
    lower = {name.lower(): name for name in names if name}
    label = columns.label or next(
        (lower[n] for n in _LABEL_COLUMNS if n in lower and lower[n] != columns.text), None
    )
    rest = {key: value for key, value in lower.items() if value != label}
    text = columns.text or next((rest[n] for n in _TEXT_COLUMNS if n in rest), None)
    if text is None and label is not None and len(rest) == 1:
        text = next(iter(rest.values()))
    if text is None:
        raise DataError(
            [f"{where}: expected a column of texts – found {', '.join(names)}"],
            "name it with data.text_column, and that of the labels with data.label_column",
        )
    return text, None if label == text else label


def column_reason(text: str, label: str | None) -> str:
    """Say which columns were taken."""
    if label is None:
        return f"text in {text!r}, no column of labels"
    return f"text in {text!r}, label in {label!r}"


def refuse_several_labels(labels: Sequence[str], name: str) -> None:
    """Refuse rows that hold several labels each, parted by commas or bars.

    Raises:
        DataError: A third of the rows or more do.
    """
    several = [label for label in labels if _SEVERAL_LABELS.search(label)]
    if len(set(several)) > _MOST_KINDS and 3 * len(several) > len(labels):
        raise DataError(
            [
                f"{name}: expected one label a row – found several, as {several[0][:60]!r} in"
                f" {len(several)} of the first {len(labels)} rows"
            ],
            "rows with several labels need another task than classes; keep one label a row",
        )
