"""Records → every problem they have, as lines of text.

Pure functions: they read records and labels and say what is wrong; the caller gathers and raises
once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from bert_lightning.data.records import LabelTable, Record


def unknown_labels(records: Iterable[Record], labels: LabelTable) -> list[str]:
    """Return one problem for each record whose label is not in the table."""
    return [
        f"{record.where}: expected {labels.expected} – found {record.label!r}"
        for record in records
        if labels.index(record.label) is None
    ]


def lone_labels(records: Sequence[Record]) -> list[str]:
    """Return one problem for each label that stands in a single record.

    Where class names come from the data alone, such a label is nearly always a word of a title
    whose label is missing.
    """
    counts = Counter(record.label for record in records)
    return [
        f"{record.where}: expected a label that occurs at least twice – found {record.label!r} once"
        for record in records
        if counts[record.label] == 1
    ]
