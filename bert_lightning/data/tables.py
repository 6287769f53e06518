"""Lines of a table with a header → records.

Quotes are those of CSV where they can be, and characters of the title where they cannot: a title
that begins with a quote never swallows the rows after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bert_lightning.data.files import NumberedLines
from bert_lightning.data.layouts import COMMA, TAB, Layout, quoted_cells
from bert_lightning.data.records import BLANK_LINE, Fault, Item, Record, item_of, shown

_LINES_OF_A_CELL = 100  # a quote that is not closed by then is a character


def read_table(lines: NumberedLines, source: str, layout: Layout) -> Iterator[Item]:
    """Read a table with a header. A cell in quotes may hold line ends."""
    rows = _Pending(lines)
    is_header = True
    for number, line in rows:
        if isinstance(line, Fault):
            yield line
        elif not line.strip():
            yield BLANK_LINE
        elif is_header:
            is_header = False
        else:
            cells = _split_cells(line, rows, layout)
            if len(cells) < layout.columns:
                yield Fault(
                    source, number, f"{layout.columns} columns", f"{len(cells)}: {shown(line)}"
                )
            else:
                yield _cells_item(_joined(cells, layout), source, number, layout)


class _Pending:
    """Numbered lines, with a look at those that come next.

    Args:
        lines: Number and text of each line.
    """

    def __init__(self, lines: NumberedLines) -> None:
        self._lines = iter(lines)
        self._ahead: list[tuple[int, str | Fault]] = []

    def __iter__(self) -> Iterator[tuple[int, str | Fault]]:
        return self

    def __next__(self) -> tuple[int, str | Fault]:
        return self._ahead.pop(0) if self._ahead else next(self._lines)

    def look_ahead(self, position: int) -> str | None:
        """Return the text of a line to come, 0 the next one; None at the end or at a fault."""
        while len(self._ahead) <= position:
            line = next(self._lines, None)
            if line is None:
                return None
            self._ahead.append(line)
        text = self._ahead[position][1]
        return None if isinstance(text, Fault) else text

    def skip(self, count: int) -> None:
        """Take the next lines out."""
        del self._ahead[:count]


def _split_cells(line: str, rows: _Pending, layout: Layout) -> list[str]:
    """Return the cells of a row, with the lines that a quoted cell runs over."""
    assert layout.separator is not None
    literal = line.split(layout.separator)
    if '"' not in line or layout.separator not in (COMMA, TAB):
        return literal
    cells = quoted_cells(line, layout.separator)
    if cells is not None:
        return cells
    text, parts = line, [line]
    for ahead in range(_LINES_OF_A_CELL):
        following = rows.look_ahead(ahead)
        if following is None:
            break
        text, parts = f"{text}\n{following}", [*parts, following]
        cells = quoted_cells(text, layout.separator)
        if cells is None:
            continue
        # rows that are whole one by one only begin with a quote that is part of the title
        if all(part.count(layout.separator) == layout.columns - 1 for part in parts):
            break
        if len(cells) == layout.columns:
            rows.skip(ahead + 1)
            return cells
        break
    return literal


def _joined(cells: list[str], layout: Layout) -> Sequence[str]:
    """Give the text the separators back that it holds without quotes: more cells than columns."""
    extra = len(cells) - layout.columns
    if not extra:
        return cells
    start = int(layout.text)
    end = start + extra + 1
    return [*cells[:start], str(layout.separator).join(cells[start:end]), *cells[end:]]


def _cells_item(cells: Sequence[str], source: str, number: int, layout: Layout) -> Record | Fault:
    label = None if layout.label is None else cells[int(layout.label)]
    return item_of(cells[int(layout.text)], label, source, number, layout.label is not None)
