"""Records → their columns in pieces that fit the memory, and labels as numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bert_lightning.data.records import LabelTable, Split
from bert_lightning.inspection.results import KEPT_EXAMPLES, Counted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bert_lightning.data.record_table import Records


@dataclass(frozen=True)
class Labelling:
    """Labels of all splits as numbers.

    Args:
        raw: Labels as they stand in the files; None, if there, for no label.
        codes: For each row of a split the position of its label in ``raw``, int64, (rows,).
        names: Class names in order.
        class_of: Class index of each label in ``raw``, int64; -1 where it stands for no class.
    """

    raw: list[str | None]
    codes: dict[Split, NDArray[np.int64]]
    names: list[str]
    class_of: NDArray[np.int64]

    def classes(self, split: Split) -> NDArray[np.int64]:
        """Return the class index of each row, -1 where it has none."""
        return self.class_of[self.codes[split]]

    def is_labelled(self, split: Split) -> NDArray[np.bool_]:
        """Return for each row whether it has a label, known or not."""
        mask: NDArray[np.bool_] = np.array([label is not None for label in self.raw], dtype=bool)
        return mask[self.codes[split]]


def labelling(records: Mapping[Split, Records], labels: LabelTable | None) -> Labelling:
    """Number the labels; without a table each label is a class, named by itself."""
    numbers: dict[str | None, int] = {}
    codes = {split: _label_codes(rows, numbers) for split, rows in records.items()}
    raw = list(numbers)
    names = labels.names if labels else sorted(label for label in raw if label is not None)
    index = labels.index if labels else {name: i for i, name in enumerate(names)}.get
    found = [None if label is None else index(label) for label in raw]
    class_of = np.array([-1 if i is None else i for i in found], dtype=np.int64)
    return Labelling(raw, codes, list(names), class_of)


def _label_codes(records: Records, numbers: dict[str | None, int]) -> NDArray[np.int64]:
    """Number the labels of a split; new ones are added to the numbers of those before."""
    codes, kinds = records.label_codes()
    places = [numbers.setdefault(label, len(numbers)) for label in kinds]
    return np.array(places, dtype=np.int64)[codes]


def shown_row(records: Records, position: int) -> str:
    """Return a row as an example: ``file:line: text``."""
    record = records[position]
    return f"{record.where}: {record.text[:200]}"


def counted_rows(records: Records, positions: NDArray[np.int64]) -> Counted:
    """Return the number of some rows, and the first of them as examples."""
    first = positions[:KEPT_EXAMPLES]
    return Counted(len(positions), [shown_row(records, int(position)) for position in first])
