"""An inspection → plain text for the terminal, in columns that hold with Chinese in them."""

from __future__ import annotations

import unicodedata

from bert_lightning.inspection.results import Finding, Inspection
from bert_lightning.inspection.tables import Table, all_tables

_CELL_COLUMNS = 40
_LAST_CELL_COLUMNS = 200  # nothing stands behind it
_EXAMPLE_COLUMNS = 110
_TABLE_ROWS = 25


def as_text(inspection: Inspection) -> str:
    """Return the report: tables, then findings with at most 20 examples each, faults first."""
    faults = len(inspection.faults)
    notes = len(inspection.findings) - faults
    parts = [
        f"{printable(inspection.name)}: {_counted(faults, 'fault')}, {_counted(notes, 'note')}",
        *map(_table_text, all_tables(inspection)),
        *map(_finding_text, inspection.findings),
    ]
    return "\n\n".join(parts) + "\n"


def _counted(count: int, word: str) -> str:
    return f"{count or 'no'} {word}{'' if count == 1 else 's'}"


def printable(text: str) -> str:
    r"""Return a text that cannot disturb a terminal.

    >>> printable("标题\x1b[2J")
    '标题\\x1b[2J'
    """
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)


def columns_of(text: str) -> int:
    """Return how many columns of a terminal a text takes.

    >>> columns_of("体育 ab")
    7
    """
    return sum(_columns(sign) for sign in text)


def _columns(sign: str) -> int:
    if unicodedata.combining(sign):
        return 0
    return 2 if unicodedata.east_asian_width(sign) in "WF" else 1


def shortened(text: str, columns: int) -> str:
    """Return a printable text of at most so many columns, with … for what was cut."""
    text = printable(text)
    if columns_of(text) <= columns:
        return text
    kept, room = "", columns - 1
    for sign in text:
        room -= _columns(sign)
        if room < 0:
            break
        kept += sign
    return f"{kept}…"


def _table_text(table: Table) -> str:
    rows = [
        [
            *(shortened(cell, _CELL_COLUMNS) for cell in row[:-1]),
            shortened(row[-1], _LAST_CELL_COLUMNS),
        ]
        for row in table.rows[:_TABLE_ROWS]
    ]
    heads = [shortened(head, _CELL_COLUMNS) for head in table.heads]
    kept = [i for i, head in enumerate(heads) if any(row[i] for row in rows)]
    widths = {i: max(columns_of(row[i]) for row in [heads, *rows]) for i in kept}
    is_number = {i: all(row[i][:1].isdigit() or row[i] == "–" for row in rows) for i in kept}
    lines = []
    for row in [heads, *rows]:
        cells = []
        for i in kept:
            gap = " " * (widths[i] - columns_of(row[i]))
            cells.append(gap + row[i] if is_number[i] else row[i] + gap)
        lines.append("  ".join(cells).rstrip())
    rest = len(table.rows) - len(rows)
    return "\n".join([table.title, *lines, *([f"… and {rest:,} more"] if rest else [])])


def _finding_text(finding: Finding) -> str:
    lines = [
        f"{finding.severity.upper()} {finding.code}: {printable(str(finding))}",
        *(f"  {shortened(example, _EXAMPLE_COLUMNS)}" for example in finding.shown),
    ]
    return "\n".join(lines)
