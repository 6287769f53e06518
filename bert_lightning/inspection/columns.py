"""Records → their columns in pieces that fit the memory, and labels as numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_lightning.data.records import LabelTable, Split
from bert_lightning.inspection.results import KEPT_EXAMPLES, Counted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bert_lightning.data.record_table import Records

PART_ROWS = 20_000


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
    import pyarrow as pa
    import pyarrow.compute as pc

    column = records.table.column("label").combine_chunks()
    encoded = pc.dictionary_encode(column, null_encoding="encode")
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    local: NDArray[np.int64] = encoded.indices.to_numpy()[records.rows].astype(np.int64)
    used = np.unique(local)
    dictionary = encoded.dictionary.to_pylist()
    translated = np.zeros(len(dictionary), dtype=np.int64)
    for position in used:  # only labels of rows that were selected
        translated[position] = numbers.setdefault(dictionary[position], len(numbers))
    numbered: NDArray[np.int64] = translated[local]
    return numbered


def text_parts(records: Records) -> Iterator[Any]:
    """Yield the texts in order as Arrow arrays of some thousand rows each."""
    import pyarrow as pa

    column = records.table.column("text")
    for start in range(0, len(records), PART_ROWS):
        rows = records.rows[start : start + PART_ROWS]
        is_stretch = rows[-1] - rows[0] == len(rows) - 1 and bool(np.all(np.diff(rows) == 1))
        yield (
            column.slice(int(rows[0]), len(rows))
            if is_stretch
            else pa.array(texts_at(records, np.arange(start, start + len(rows))), pa.string())
        )


def texts_at(records: Records, positions: NDArray[np.int64]) -> list[str]:
    """Return the texts at some positions.

    One by one: Arrow's `take` first joins all parts of a column, 1 s and 2 GB for 740,000 articles.
    """
    column = records.table.column("text")
    return [column[row].as_py() for row in records.rows[positions].tolist()]


def shown_row(records: Records, position: int) -> str:
    """Return a row as an example: ``file:line: text``."""
    record = records[position]
    return f"{record.where}: {record.text[:200]}"


def counted_rows(records: Records, positions: NDArray[np.int64]) -> Counted:
    """Return the number of some rows, and the first of them as examples."""
    first = positions[:KEPT_EXAMPLES]
    return Counted(len(positions), [shown_row(records, int(position)) for position in first])
