"""Results → a PNG of the main plot, for a README."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bert_lightning.benchmark.case_marks import HATCHES, colours_of

Result = dict[str, Any]


def write_picture(path: Path, title: str, results: Sequence[Result]) -> None:
    """Write samples a second and peak memory of each timed case; nothing where there is none.

    Args:
        path: PNG file.
        title: Name of the device.
        results: Of the cases.
    """
    rows = [row for row in results if row.get("samples_per_second")][::-1]
    if not rows:
        return
    from matplotlib.figure import Figure  # slow to load

    measures = [("samples_per_second", "samples/s")]
    if any(row["allocated_gib"] for row in rows):
        measures.append(("allocated_gib", "peak GiB"))
    figure = Figure(figsize=(4 + 4 * len(measures), 1.2 + 0.32 * len(rows)), layout="constrained")
    colours = colours_of(results)
    names = [f"{row['variant']}, {row['lengths']}, {row['batch_size']}" for row in rows]
    for number, (key, head) in enumerate(measures):
        axes = figure.add_subplot(1, len(measures), number + 1)
        values = [row[key] or 0.0 for row in rows]
        bars = axes.barh(range(len(rows)), values, color=[colours[row["variant"]] for row in rows])
        for bar, row in zip(bars, rows, strict=True):
            bar.set(hatch=HATCHES[row["lengths"]], edgecolor="white")
        axes.bar_label(bars, fmt="{:,.0f}" if key == "samples_per_second" else "{:.2f}", padding=3)
        axes.set_yticks(range(len(rows)), names if not number else [""] * len(rows))
        axes.set_title(head, fontsize=10)
        axes.margins(x=0.18)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"{title}: variant, lengths, batch", fontsize=11)
    figure.savefig(path, dpi=150)
