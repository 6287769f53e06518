"""Results of cells → Markdown: a table a group, each row beside the first one of its group."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from bert_lightning.benchmark.peer_cells import GROUPS, Group

Result = dict[str, Any]
Column = tuple[str, Callable[[Result, Result], str]]


def _number(key: str, form: str = ",.0f") -> Callable[[Result, Result], str]:
    def show(row: Result, base: Result) -> str:
        value = row.get(key)
        return "–" if value is None else format(value, form)

    return show


def _ratio(key: str) -> Callable[[Result, Result], str]:
    def show(row: Result, base: Result) -> str:
        if not row.get(key) or not base.get(key):
            return "–"
        return f"{row[key] / base[key]:.2f}"

    return show


def _repeats(row: Result, base: Result) -> str:
    return " ".join(f"{rate:,.0f}" for rate in row["repeats"])


TRAINING_COLUMNS: tuple[Column, ...] = (
    ("samples/s", _number("samples_per_second")),
    ("× first row", _ratio("samples_per_second")),
    ("pieces/s", _number("pieces_per_second")),
    ("each window", _repeats),
    ("steps", _number("steps")),
    ("s", _number("seconds", ".2f")),
    ("GiB allocated", _number("allocated_gib", ".2f")),
    ("× first row's GiB", _ratio("allocated_gib")),
    ("GiB reserved", _number("reserved_gib", ".2f")),
    ("s to first step", _number("first_step_seconds", ".1f")),
)
PREDICTION_COLUMNS: tuple[Column, ...] = (
    ("titles/s after start-up", _number("samples_per_second")),
    ("× first row", _ratio("samples_per_second")),
    ("all in all", _number("total_samples_per_second")),
    ("rows → probabilities", _number("loop_samples_per_second")),
    ("titles", _number("titles")),
    ("GiB allocated", _number("allocated_gib", ".2f")),
    ("GiB reserved", _number("reserved_gib", ".2f")),
)


def as_markdown(results: list[Result]) -> str:
    """Return tables of the results, those of one machine and its versions together."""
    lines = [
        "# Beside the peers",
        "",
        "Samples are real rows and pieces real ones, not padding. The first row of a table is what"
        " the others are compared with. Steady training: the median of the windows, start-up and"
        " warm-up left out; where steps are made for a shape, the warm-up goes on while new shapes"
        " come up, for some seconds at most. The first step counts from the start of the process;"
        " kernels that an earlier cell has compiled are found again. Prediction: from a file of"
        " texts to a file of labels.",
        "",
    ]
    for heading, own in by_environment(results):
        lines += heading
        if own[0]["environment"]["device"] == "cpu":
            lines += ["Nothing is fp16 here: a CPU runs the peers' mixed precision in float32.", ""]
        for group in GROUPS:
            lines += _table(group, {r["cell"]: r for r in own if r["group"] == group.name})
    return "\n".join(lines).rstrip() + "\n"


def by_environment(results: list[Result]) -> Iterator[tuple[list[str], list[Result]]]:
    """Yield the heading of each machine and its versions, with the results of both."""
    left = results
    while left:
        environment = left[0]["environment"]
        versions = ", ".join(f"{name} {value}" for name, value in environment.items())
        heading = [f"## {environment['device']}", "", versions, ""]
        yield heading, [result for result in left if result["environment"] == environment]
        left = [result for result in left if result["environment"] != environment]


def _table(group: Group, rows: dict[str, Result]) -> list[str]:
    if not rows:
        return []
    columns = PREDICTION_COLUMNS if group.predicts else TRAINING_COLUMNS
    base = rows.get(group.cells[0].name, {})
    cells = [["cell", *(title for title, _ in columns)], ["---"] * (1 + len(columns))]
    for cell in group.cells:
        row = rows.get(cell.name)
        if row is None:
            continue
        if "reason" in row:
            cells.append([cell.name, row["reason"], *[""] * (len(columns) - 1)])
        else:
            cells.append([cell.name, *(show(row, base) for _, show in columns)])
    calls = len({row["call"] for row in rows.values()})
    warning = f"Measured in {calls} calls, so rows may be of different machines of this kind."
    return [
        f"### {group.title}",
        "",
        *(f"| {' | '.join(row)} |" for row in cells),
        "",
        *([warning, ""] if calls > 1 else []),
    ]
