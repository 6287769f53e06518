"""Results of scaling → Markdown: speeds with their efficiency, then what must not change."""

from __future__ import annotations

from bert_lightning.benchmark.peer_tables import Result, by_environment

HEADINGS = ("strategy", "devices", "samples/s", "efficiency", "execution", "GiB a device", "steps")


def as_markdown(results: list[Result]) -> str:
    """Return tables of the results, those of one machine and its versions together."""
    lines = [
        "# On several devices",
        "",
        "Samples are real rows of all devices together. Efficiency is samples/s over N times those"
        " on one device, of the same strategy in the same execution. GiB are the most that any"
        " device had allocated.",
        "",
    ]
    for heading, own in by_environment(results):
        lines += heading
        for group in dict.fromkeys(row["group"] for row in own if row["group"] != "checks"):
            lines += [f"### {group}", ""]
            lines += _speeds([row for row in own if row["group"] == group])
        lines += _checks([row for row in own if row["group"] == "checks"])
    return "\n".join(lines).rstrip() + "\n"


def efficiency(row: Result, rows: list[Result]) -> float | None:
    """Return the share of the speed that so many devices could reach, None if it is not known.

    Args:
        row: A result.
        rows: Results of the same load, among them that of one device.
    """
    for base in rows:
        same = all(base.get(key) == row.get(key) for key in ("cell", "execution"))
        if same and base["devices"] == 1 and "reason" not in base:
            return float(row["samples_per_second"] / row["devices"] / base["samples_per_second"])
    return None


def _speeds(rows: list[Result]) -> list[str]:
    cells = [HEADINGS, ("---",) * len(HEADINGS)]
    for row in rows:
        name = (row["cell"], str(row["devices"]))
        if "reason" in row:
            cells.append((*name, row["reason"], *("",) * (len(HEADINGS) - 3)))
            continue
        share, memory = efficiency(row, rows), row["allocated_gib"]
        cells.append(
            (
                *name,
                f"{row['samples_per_second']:,.0f}",
                "–" if share is None else f"{share:.2f}",
                row["execution"],
                "–" if memory is None else f"{memory:.2f}",
                str(row["steps"]),
            )
        )
    return _table(cells)


def _checks(rows: list[Result]) -> list[str]:
    if not rows:
        return []
    cells: list[tuple[str, ...]] = [
        ("what must not change", "devices", "expected", "found", "holds"),
        ("---",) * 5,
    ]
    for row in rows:
        if "reason" in row:
            outcome = (row["reason"], "", "")
        else:
            outcome = (row["expected"], row["found"], "yes" if row["holds"] else "**no**")
        cells.append((row["cell"], str(row["devices"]), *outcome))
    return ["### Checks", "", *_table(cells)]


def _table(cells: list[tuple[str, ...]]) -> list[str]:
    return [*(f"| {' | '.join(row)} |" for row in cells), ""]
