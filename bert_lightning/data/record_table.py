"""Records → a table on disk, memory-mapped when it is opened again.

Long before millions of texts fill the memory they are on disk; a record is made again when somebody
asks for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from bert_lightning.data.keys import key_of, normalised
from bert_lightning.data.records import Record
from bert_lightning.data.storage import open_arrow, write_arrow

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

_BATCH_ROWS = 20_000


class Records(Sequence[Record]):
    """Records of one split, in file order unless selected otherwise.

    Args:
        table: Columns ``text``, ``label``, ``source`` (strings), ``line``, ``text_key`` and
            ``normalised_key`` (int64; see `bert_lightning.data.keys`).
        rows: Row numbers in the table that belong to it, int64; None for all.
        name: What the table is called among those that were read together.
    """

    def __init__(
        self, table: pa.Table, rows: NDArray[np.int64] | None = None, name: str = ""
    ) -> None:
        self.table = table
        self.rows = np.arange(table.num_rows) if rows is None else rows
        self.name = name

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, position: int) -> Record: ...
    @overload
    def __getitem__(self, position: slice) -> list[Record]: ...
    def __getitem__(self, position: int | slice) -> Record | list[Record]:
        if isinstance(position, slice):
            return [self[index] for index in range(*position.indices(len(self)))]
        row = int(self.rows[position])
        names = ("text", "label", "source", "line")
        return Record(*(self.table.column(name)[row].as_py() for name in names))

    def __iter__(self) -> Iterator[Record]:
        columns = [self.strings(name) for name in ("text", "label", "source")]
        for text, label, source, line in zip(*columns, self.numbers("line"), strict=True):
            yield Record(text, label, source, int(line))

    def select(self, positions: NDArray[Any]) -> Records:
        """Return the records at some positions (or where a mask is true), in that order."""
        return Records(self.table, self.rows[positions], self.name)

    def whole(self) -> Records:
        """Return all records of the table, those that were not selected too."""
        return Records(self.table, None, self.name)

    def parts(self, column: str) -> Iterator[Any]:
        """Yield the values of a column in order as Arrow arrays of some thousand rows each."""
        import pyarrow as pa

        whole = self.table.column(column)
        for start in range(0, len(self.rows), _BATCH_ROWS):
            rows = self.rows[start : start + _BATCH_ROWS]
            if np.array_equal(rows, np.arange(rows[0], rows[0] + len(rows))):
                yield whole.slice(int(rows[0]), len(rows))
            else:
                # Arrow's take first joins all parts of a column: 2 GB for 740,000 articles
                yield pa.array([whole[row].as_py() for row in rows.tolist()], whole.type)

    def strings(self, column: str) -> Iterator[Any]:
        """Yield the values of a column: ``text``, ``label`` (str or None) or ``source``."""
        for part in self.parts(column):
            yield from part.to_pylist()

    def numbers(self, column: str) -> NDArray[np.int64]:
        """Return ``line``, ``text_key`` or ``normalised_key``, int64 of shape (records,)."""
        values: NDArray[np.int64] = self.table.column(column).to_numpy()
        return values[self.rows]

    def label_codes(self) -> tuple[NDArray[np.int64], list[str | None]]:
        """Return the labels as they stand in the files.

        Returns:
            For each record the position of its label in the list, int64 of shape (records,), and
            the list of different labels; None is one of them where records have none.
        """
        whole = self.table.column("label").combine_chunks().dictionary_encode("encode")
        codes = whole.indices.to_numpy(zero_copy_only=False).astype(np.int64)[self.rows]
        present, codes = np.unique(codes, return_inverse=True)
        return codes, whole.dictionary.take(present).to_pylist()


def write_records(path: Path, records: Iterable[Record]) -> None:
    """Write records to an Arrow file."""
    write_arrow(path, _schema(), _batches(iter(records)))


def open_records(path: Path) -> Records:
    """Open what `write_records` wrote."""
    return Records(open_arrow(path), name=path.stem)


def records_in_memory(records: Sequence[Record]) -> Records:
    """Return a table that was never on disk."""
    import pyarrow as pa

    batches = [
        pa.record_batch(
            [pa.array(columns[field.name], field.type) for field in _schema()], _schema()
        )
        for columns in _batches(iter(records))
    ]
    return Records(pa.Table.from_batches(batches, _schema()))


def _batches(records: Iterator[Record]) -> Iterator[dict[str, list[Any]]]:
    while part := list(islice(records, _BATCH_ROWS)):
        yield {
            "text": [record.text for record in part],
            "label": [record.label for record in part],
            "source": [record.source for record in part],
            "line": [record.line for record in part],
            "text_key": [key_of(record.text) for record in part],
            "normalised_key": [key_of(normalised(record.text) or record.text) for record in part],
        }


def _schema() -> pa.Schema:
    import pyarrow as pa

    strings = [(name, pa.string()) for name in ("text", "label", "source")]
    numbers = [(name, pa.int64()) for name in ("line", "text_key", "normalised_key")]
    return pa.schema([*strings, *numbers])
