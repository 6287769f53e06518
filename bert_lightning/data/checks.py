"""Records → every row that cannot be used, as faults.

Pure functions: they look at labels and keys and say what is wrong; the caller decides whether that
is an error.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from bert_lightning.data.record_table import Records
from bert_lightning.data.records import SPLITS, Fault, LabelTable, Split


def class_indices(records: Records, labels: LabelTable) -> NDArray[np.int64]:
    """Return the class index of each record, int64 of shape (records,); -1 for unknown labels."""
    codes, kinds = records.label_codes()
    indices = [labels.index(label) for label in kinds]
    known = np.array([-1 if index is None else index for index in indices], dtype=np.int64)
    return known[codes]


def unknown_labels(records: Records, labels: LabelTable) -> list[Fault]:
    """Return one fault for each record whose label is not in the table."""
    unknown = np.flatnonzero(class_indices(records, labels) < 0)
    return [
        Fault(record.source, record.line, labels.expected, repr(record.label))
        for record in map(records.__getitem__, unknown.tolist())
    ]


def label_counts(records: Records) -> Counter[str | None]:
    """Count the records of each label as it stands in the files."""
    codes, kinds = records.label_codes()
    return Counter(dict(zip(kinds, np.bincount(codes, minlength=len(kinds)).tolist(), strict=True)))


def lone_labels(records: Records) -> dict[str, Fault]:
    """Return the labels that stand in a single record, with a fault for that record.

    Where class names come from the ends of lines alone, such a label is nearly always a word of a
    title whose label is missing.
    """
    codes, _ = records.label_codes()
    lone = np.flatnonzero(np.bincount(codes, minlength=1)[codes] == 1)
    return {
        str(record.label): Fault(
            record.source,
            record.line,
            "a label that occurs at least twice",
            f"{record.label!r} once",
        )
        for record in map(records.__getitem__, lone.tolist())
    }


def leaked_rows(records: dict[Split, Records]) -> dict[Split, NDArray[np.bool_]]:
    """Tell the rows whose headline stands in a later split too, as train, val, test follow.

    Headlines are the same if their normalised keys are (see `bert_lightning.data.keys`).

    Returns:
        For each split that has a later one, bool of shape (records,).
    """
    present = [split for split in SPLITS if split in records]
    keys = {split: records[split].numbers("normalised_key") for split in present}
    return {
        split: np.isin(keys[split], np.concatenate([keys[later] for later in present[number:]]))
        for number, split in enumerate(present[:-1], start=1)
    }
