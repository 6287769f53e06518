"""Labels as they stand in the files → the classes, in their order.

Names come from the user, else from a class file, else from the checkpoint, else from the labels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bert_lightning.data.checks import label_counts, lone_labels
from bert_lightning.data.reading import Reading
from bert_lightning.data.records import Fault, LabelTable
from bert_lightning.errors import CheckpointError, DataError


@dataclass(frozen=True)
class Trained:
    """What a checkpoint says of the data that it was trained on.

    Args:
        class_names: Names in the model's order.
        fingerprint: Fingerprint of that data.
        holdout_ratio: How it was split where val or test had no file.
        seed: Seed of that split.
        must_be_same: False where the user named the data, so that it may be other data.
    """

    class_names: list[str]
    fingerprint: str
    holdout_ratio: float = 0.1
    seed: int = 0
    must_be_same: bool = True


def leave_out_unlabelled(reading: Reading) -> list[str]:
    """Take a test split without labels out, and return a line that says so.

    Raises:
        DataError: Train or val has no labels.
    """
    notes, problems = [], []
    for file in reading.files:
        if file.is_labelled:
            continue
        if file.split == "test" and len(reading.files) > 1:
            del reading.records["test"]
            notes.append(f"{file.source} holds no labels and is left out: predict takes it")
        else:
            problems.append(f"{file.source}: expected labels – found {file.layout}")
    if problems:
        raise DataError(
            problems, "name the column with data.label_column; texts without labels are for predict"
        )
    return notes


@dataclass(frozen=True)
class Classes:
    """The classes of a data set.

    Args:
        labels: Their names in order, and what labels in the files mean.
        source: Where the names come from, for messages.
        lone: Faults of records whose label stands in no other and is therefore taken for none.
        notes: A line about classes without rows, if there are any.
    """

    labels: LabelTable
    source: str
    lone: list[Fault]
    notes: list[str]


def settle_classes(
    reading: Reading, class_names: Sequence[str], trained: Trained | None
) -> Classes:
    """Tell the classes: the user's, those of the class file, of the checkpoint, or of the data.

    Raises:
        CheckpointError: The data has other classes than the checkpoint.
        DataError: There are fewer than two classes.
    """
    names, source = _given_names(reading, class_names, trained)
    # labels that the same data had beside its classes were left out when it was trained on
    is_other = trained is not None and trained.fingerprint != reading.fingerprint
    if trained and is_other and source == "the checkpoint":
        _refuse_other_classes(reading, trained.class_names)
    lone = _lone_labels(reading) if names is None else {}
    labels, notes = _settle_labels(reading, names, set(lone))
    if trained:
        labels = in_trained_order(labels, trained.class_names, reading.path)
    return Classes(labels, source, list(lone.values()), notes)


def _given_names(
    reading: Reading, class_names: Sequence[str], trained: Trained | None
) -> tuple[list[str] | None, str]:
    """Return the class names that do not come from the data itself, and where they come from."""
    if class_names:
        return list(class_names), "data.class_names"
    if reading.class_list:
        return reading.class_list.names, reading.class_list.source
    return (trained.class_names, "the checkpoint") if trained else (None, "train")


def balanced_weights(indices: NDArray[np.int64], classes: int) -> list[float]:
    """Return weights inverse to the rows of each class, whose mean over all rows is 1.

    The formula is that of ``class_weight="balanced"`` in scikit-learn.

    Args:
        indices: Class index of each row, shape (rows,).
        classes: Number of classes; one without rows gets a weight that is never used.
    """
    rows = np.bincount(indices, minlength=classes)
    return [float(len(indices) / (classes * max(1, count))) for count in rows]


def in_trained_order(labels: LabelTable, trained: list[str], path: str) -> LabelTable:
    """Return the labels in the class order of a checkpoint.

    Raises:
        CheckpointError: There are classes that the checkpoint does not know.
    """
    if not set(labels.names) <= set(trained):
        raise _other_classes(labels.names, trained, path)
    return labels.in_order_of(trained)


def _other_classes(names: Sequence[str], trained: Sequence[str], path: str) -> CheckpointError:
    return CheckpointError(
        f"ckpt_path: expected a checkpoint of the {len(names)} classes in {path}:"
        f" {', '.join(names)} – it has {len(trained)}: {', '.join(trained)}\n"
        "test it on data of its own classes, or say what the ids stand for in data.class_names"
    )


def _refuse_other_classes(reading: Reading, trained: list[str]) -> None:
    """Tell other classes, which come in numbers, from a row whose label is missing."""
    counts: Counter[str | None] = Counter()
    for records in reading.records.values():
        counts += label_counts(records)
    names = sorted(label for label, count in counts.items() if label and count > 1)
    if not all(map(_is_id, names)) and not set(names) <= set(trained):
        raise _other_classes(names, trained, reading.path)


def _lone_labels(reading: Reading) -> dict[str, Fault]:
    """Find labels of one record, where a label is only the end of a line."""
    first = next(iter(reading.records))
    form = next(file.form for file in reading.files if file.split == first)
    return lone_labels(reading.records[first]) if form == "lines" else {}


def _settle_labels(
    reading: Reading, names: list[str] | None, lone: set[str]
) -> tuple[LabelTable, list[str]]:
    """Return the label table (given names, or the sorted labels of the records) and notes.

    Args:
        reading: The records.
        names: Class names that do not come from the data, or None.
        lone: Labels that stand in one record and are therefore none.
    """
    counts = label_counts(next(iter(reading.records.values())))
    numeric = 2 * sum(n for label, n in counts.items() if _is_id(label)) >= counts.total()
    if names is None:
        found = {label for label in counts if label is not None} - lone
        return LabelTable(sorted(found, key=lambda name: (len(name) if numeric else 0, name))), []
    labels = LabelTable(names, _meanings(reading, names, counts, numeric))
    used = {labels.index(label) for label in counts} - {None}
    if len(used) == len(labels):
        return labels, []
    unused = [name for index, name in enumerate(labels.names) if index not in used]
    return labels, [
        f"{len(labels)} class names, but rows of {len(used)} in the data: none of"
        f" {', '.join(unused)}"
    ]


def _meanings(
    reading: Reading, names: list[str], counts: Counter[str | None], numeric: bool
) -> dict[str, str] | None:
    """Return what the labels in the files stand for, if they are not the names themselves."""
    class_list = reading.class_list
    if class_list and class_list.meanings and class_list.names == names:
        by_name = sum(counts[name] for name in names)
        if sum(counts[label] for label in class_list.meanings) > by_name:
            return class_list.meanings
    if numeric and not all(map(_is_id, names)):
        return {str(number): name for number, name in enumerate(names)}
    return None


def _is_id(label: str | None) -> bool:
    return label is not None and label.isascii() and label.isdigit()
