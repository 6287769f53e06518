"""An inspection → headed rows of words, the same for the terminal and the page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bert_lightning.inspection.results import (
    Distribution,
    Inspection,
    PieceStatistics,
    SplitStatistics,
)


@dataclass(frozen=True)
class Table:
    """Words in rows of equal length; the first column is text, the others are mostly numbers.

    Args:
        title: What it shows.
        heads: Names of the columns.
        rows: Cells.
    """

    title: str
    heads: list[str]
    rows: list[list[str]]


def all_tables(inspection: Inspection) -> list[Table]:
    """Return all tables that have rows."""
    tables = [
        _files(inspection),
        class_table(inspection),
        _titles(inspection),
        _shared(inspection),
        _lengths(inspection),
        _pieces(inspection),
    ]
    return [table for table in tables if table.rows]


def _files(inspection: Inspection) -> Table:
    return Table(
        "Files",
        ["file", "split", "rows", "blank lines", "encoding", "layout"],
        [
            [
                *(facts.source, facts.split, f"{facts.rows:,}", f"{facts.blank_lines:,}"),
                *(facts.encoding, facts.layout),
            ]
            for facts in inspection.files
        ],
    )


def class_table(inspection: Inspection) -> Table:
    """Return rows of each class in each split, and their sum."""
    splits = inspection.splits.values()
    counts = [
        [name, *(f"{split.class_rows[name]:,}" for split in splits)]
        for name in inspection.class_names
    ]
    total = ["all rows", *(f"{split.rows:,}" for split in splits)]
    return Table("Rows of each class", ["class", *inspection.splits], [total, *counts])


def _titles(inspection: Inspection) -> Table:
    def row(name: str, cell: Callable[[SplitStatistics], str]) -> list[str]:
        return [name, *(cell(split) for split in inspection.splits.values())]

    marks = next(iter(inspection.splits.values())).marks if inspection.splits else {}
    rows = [
        row("again in its split: to the letter", lambda s: f"{s.repeats.exact:,}"),
        row("again in its split: by key", lambda s: f"{s.repeats.by_key:,}"),
        row("with two labels", lambda s: f"{s.two_labels:,}"),
        row("without a label", lambda s: f"{s.unlabelled.count:,}"),
        row("empty", lambda s: f"{s.empty.count:,}"),
        row("of one or two characters", lambda s: f"{s.short.count:,}"),
        *(_mark_row(inspection, mark) for mark in marks),
    ]
    told = [cells for cells in rows if set(cells[1:]) != {"0"}]
    runs = row("stretches of equal labels", lambda s: f"{s.runs:,}")
    shuffled = row("the same in random order", lambda s: f"{s.runs_if_shuffled:,.0f}")
    return Table("Titles", ["", *inspection.splits], [*told, runs, shuffled])


def _mark_row(inspection: Inspection, mark: str) -> list[str]:
    counts = [f"{split.marks[mark].count:,}" for split in inspection.splits.values()]
    return [f"with {mark.replace('_', ' ')}", *counts]


def _shared(inspection: Inspection) -> Table:
    rows = [
        [f"{pair.first}, {pair.second}", f"{pair.exact:,}", f"{pair.by_key:,}"]
        for pair in inspection.shared
        if pair.by_key
    ]
    return Table("Titles in two splits", ["splits", "to the letter", "by key"], rows)


def _spread(lengths: Distribution) -> list[str]:
    levels = (lengths.p50, lengths.p90, lengths.p95, lengths.p99, lengths.maximum)
    return [f"{lengths.minimum:,}", f"{lengths.mean:,.1f}", *(f"{level:,}" for level in levels)]


def _lengths(inspection: Inspection) -> Table:
    rows = []
    for split, statistics in inspection.splits.items():
        if statistics.characters:
            rows.append([f"{split}, characters", *_spread(statistics.characters)])
        if statistics.pieces:
            rows.append([f"{split}, pieces", *_spread(statistics.pieces.pieces)])
    return Table("Lengths", ["", "min", "mean", "p50", "p90", "p95", "p99", "max"], rows)


def _pieces(inspection: Inspection) -> Table:
    tokens = inspection.tokens
    if tokens is None:
        return Table("", [], [])
    rows = [
        [split, *_piece_cells(statistics.pieces, statistics.rows)]
        for split, statistics in inspection.splits.items()
        if statistics.pieces
    ]
    return Table(
        f"At data.max_length {tokens.max_length}, batches of {tokens.batch_size}"
        f" (advised: {tokens.advised_max_length})",
        ["", "rows cut", "padding", "rows with [UNK]", "[UNK] of pieces"],
        rows,
    )


def _piece_cells(pieces: PieceStatistics, rows: int) -> list[str]:
    waste = pieces.padding_waste
    return [
        f"{pieces.truncated / rows:.2%}",
        "–" if waste is None else f"{waste:.1%}",
        f"{pieces.unknown_rows / rows:.1%}",
        f"{pieces.unknown_pieces / pieces.total_pieces:.2%}",
    ]
