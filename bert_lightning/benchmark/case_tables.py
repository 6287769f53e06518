"""Results and judgements → tables of words, and these as Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bert_lightning.benchmark.verdicts import Judgement
from bert_lightning.inspection.tables import Table

Result = dict[str, Any]
NOTHING = "–"


def _number(key: str, form: str = ",.0f") -> Callable[[Result], str]:
    return lambda row: NOTHING if row.get(key) is None else format(row[key], form)


COLUMNS: tuple[tuple[str, Callable[[Result], str]], ...] = (
    ("batch", _number("batch_size")),
    ("s an epoch", _number("epoch_seconds", ",.1f")),
    ("samples/s", _number("samples_per_second")),
    ("tokens/s", _number("pieces_per_second")),
    ("padding", _number("padding", ".1%")),
    ("of peak", _number("peak_share", ".0%")),
    ("GiB", _number("allocated_gib", ".2f")),
    ("GiB reserved", _number("reserved_gib", ".2f")),
    ("Wh an epoch", _number("epoch_wh", ".2f")),
    ("skipped", _number("skipped_steps")),
    ("execution", lambda row: str(row.get("execution", NOTHING)).split(" – ")[0]),
)


def speed_table(results: Sequence[Result]) -> Table:
    """Return a line for each case that was timed, or the reason why it was not."""
    rows = []
    for row in [row for row in results if row["seed"] is None]:
        name = f"{row['variant']}, {row['lengths']}" + ("" if row["batch"] else ", largest batch")
        if "reason" in row:
            batch = f"{row['batch'] or NOTHING}"
            rows.append([name, batch, row["reason"], *[""] * (len(COLUMNS) - 2)])
        else:
            rows.append([name, *(show(row) for _, show in COLUMNS)])
    return Table("Speed and memory", ["case", *(head for head, _ in COLUMNS)], rows)


def accuracy_table(results: Sequence[Result]) -> Table:
    """Return a line for each variant that was trained to the end."""
    rows = []
    for variant, runs in seeds_of(results).items():
        scores = [run["accuracy"] for run in runs if "accuracy" in run]
        failed = [f"seed {run['seed']}: {run['reason']}" for run in runs if "reason" in run]
        rows.append(
            [
                variant,
                f"{statistics.fmean(scores):.2%}" if scores else NOTHING,
                f"{statistics.stdev(scores):.2%}" if len(scores) > 1 else NOTHING,
                " ".join(f"{score:.2%}" for score in scores) or NOTHING,
                " ".join(str(run["skipped_steps"]) for run in runs if "accuracy" in run),
                "; ".join(failed),
            ]
        )
    heads = ["variant", "val accuracy", "spread", "each seed", "skipped steps", "failed"]
    return Table("Accuracy", heads, rows)


def seeds_of(results: Sequence[Result]) -> dict[str, list[Result]]:
    """Return the runs that were trained to the end, by variant."""
    runs: dict[str, list[Result]] = {}
    for row in results:
        if row["seed"] is not None:
            runs.setdefault(row["variant"], []).append(row)
    return runs


def claims_table(judgements: Sequence[Judgement]) -> Table:
    """Return a line for each claim."""
    rows = [[j.verdict, j.claim, j.measured or NOTHING, j.reason] for j in judgements]
    return Table("Claims", ["verdict", "claim", "measured", "why"], rows)


def tables_of(results: Sequence[Result], judgements: Sequence[Judgement]) -> list[Table]:
    """Return all tables that have lines."""
    tables = [claims_table(judgements), speed_table(results), accuracy_table(results)]
    return [table for table in tables if table.rows]


def as_markdown(
    subject: Mapping[str, str], results: Sequence[Result], judgements: Sequence[Judgement]
) -> str:
    """Return what was measured as Markdown."""
    lines = ["# Benchmark", ""]
    lines += [f"- **{name}**: {text}" for name, text in subject.items()]
    for table in tables_of(results, judgements):
        cells = [table.heads, ["---"] * len(table.heads), *table.rows]
        lines += ["", f"## {table.title}", ""]
        lines += [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in cells]
    return "\n".join(lines) + "\n"
