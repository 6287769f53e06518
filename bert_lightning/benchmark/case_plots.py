"""Results → plots of the page: bars and strips as HTML, which finds room for any name; SVG else."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from html import escape
from typing import Any

from bert_lightning.benchmark.case_marks import (
    DASHES,
    colours_of,
    key,
    mark,
    names_beside,
    text,
)
from bert_lightning.benchmark.case_tables import seeds_of
from bert_lightning.inspection.plots import WIDTH, Axis, axes, svg, ticks

Result = dict[str, Any]
HEIGHT = 300.0  # of the plot over the batch
MEMORY_PARTS = {
    "weights_gib": "weights",
    "optimizer_gib": "gradients and optimizer",
    "activations_gib": "activations and the rest",
}
STYLE = """
.stack { width: 100%; } .stack td:first-child { width: 34%; } .stack td:last-child { width: 90px;
  white-space: nowrap; text-align: right; } .stack div { display: flex; height: 14px; }
.stack i { display: block; height: 14px; }
:root { --three: #6b8f3a; --part1: #37474f; --part2: #78909c; --part3: #b7c4ca; }
@media (prefers-color-scheme: dark) { :root { --part1: #dfe7ea; --part2: #90a4ae;
  --part3: #4b606b; } }
.key { white-space: nowrap; margin-right: 12px; } .swatch { display: inline-block; width: 12px;
  margin-right: 4px; } .name { paint-order: stroke; stroke: var(--back); stroke-width: 3px; }
.stack .strip { position: relative; margin: 4px 8px; background: var(--panel); }
.strip i, .strip b { position: absolute; } .strip i { width: 10px; height: 10px; top: 2px;
  margin-left: -5px; border-radius: 50%; opacity: .8; }
.strip b { width: 2px; height: 14px; margin-left: -1px; background: var(--text); }
.ends { display: flex; justify-content: space-between; }
.wide table { font-size: .88em; }
.verdict { font-weight: 600; } .holds { color: var(--three); } .fails { color: var(--fault); }
.open { color: var(--two); }
"""


def label_of(row: Result) -> str:
    """Return the name of a timed case, its batch included."""
    return f"{row['variant']}, {row['lengths']}, batch {row['batch_size']}"


def epoch_bars(results: Sequence[Result]) -> str:
    """Return a bar for the seconds of an epoch of each case."""
    colours = colours_of(results)
    rows = [
        (label_of(row), [(row["epoch_seconds"], colours[row["variant"]])])
        for row in _timed(results)
    ]
    return _bars(rows, "{:,.1f} s") if rows else ""


def memory_bars(results: Sequence[Result]) -> str:
    """Return a bar for the peak memory of each case, in its parts; empty without a GPU."""
    shades = {part: f"var(--part{number})" for number, part in enumerate(MEMORY_PARTS, 1)}
    rows = [
        (label_of(row), [(row[part], shade) for part, shade in shades.items()])
        for row in _timed(results)
        if row.get("activations_gib") is not None
    ]
    if not rows:
        return ""
    names = key({name: shades[part] for part, name in MEMORY_PARTS.items()}, [])
    return f"{_bars(rows, '{:.2f} GiB')}<p class=soft>from the left: {names}</p>"


def _bars(rows: Sequence[tuple[str, Sequence[tuple[float, str]]]], form: str) -> str:
    """Return a table of bars, each of parts with their colours."""
    totals = [sum(value for value, _ in parts) for _, parts in rows]
    most = max(totals) or 1
    lines = []
    for (name, parts), total in zip(rows, totals, strict=True):
        drawn = "".join(
            f'<i style="width:{100 * value / most:.2f}%;background:{colour}"></i>'
            for value, colour in parts
        )
        lines.append(_line(name, f"<div>{drawn}</div>", form.format(total)))
    return f"<table class=stack>{''.join(lines)}</table>"


def _line(name: str, drawn: str, value: str) -> str:
    return f"<tr><td>{escape(name)}</td><td>{drawn}</td><td>{value}</td></tr>"


def _timed(results: Sequence[Result]) -> list[Result]:
    return [row for row in results if row.get("epoch_seconds") is not None]


def batch_plot(results: Sequence[Result]) -> str:
    """Return samples a second over the batch, a line for each variant and lengths."""
    rows = _timed(results)
    if not rows:
        return ""
    exponents = [math.log2(row["batch_size"]) for row in rows]
    low, high = math.floor(min(exponents)) - 0.5, math.ceil(max(exponents)) + 0.5
    x, y = axes(high - low, max(row["samples_per_second"] for row in rows) * 1.08, HEIGHT)
    parts = _frame(x, y, low, high)
    colours = colours_of(results)
    points = []
    for (variant, lengths), places in _lines(rows, x, y, low).items():
        style = f'stroke="{colours[variant]}" stroke-dasharray="{DASHES[lengths]}"'
        joined = " ".join(f"{a},{b}" for a, b, _ in places)
        parts.append(f'<polyline points="{joined}" {style}/>')
        parts += [mark(lengths, a, b, colours[variant], name) for a, b, name in places]
        points += [(a, b, "") for a, b, _ in places[:-1]]
        points.append((*places[-1][:2], variant))
    return svg("Samples a second over the batch", [*parts, *names_beside(points, x)], HEIGHT)


def _lines(
    rows: Sequence[Result], x: Axis, y: Axis, low: float
) -> dict[tuple[str, str], list[tuple[float, float, str]]]:
    """Return place and name of each point from left to right, by variant and lengths."""
    lines: dict[tuple[str, str], list[tuple[float, float, str]]] = {}
    for row in sorted(rows, key=lambda row: row["batch_size"]):
        place = x.at(math.log2(row["batch_size"]) - low), y.at(row["samples_per_second"])
        lines.setdefault((row["variant"], row["lengths"]), []).append((*place, label_of(row)))
    return lines


def _frame(x: Axis, y: Axis, low: float, high: float) -> list[str]:
    parts = []
    for value in ticks(y.most):
        at = y.at(value)
        parts.append(f'<line class="grid" x1="{x.start}" x2="{x.end}" y1="{at}" y2="{at}"/>')
        parts.append(text(x.start - 6, at + 4, f"{value:,.0f}", "end"))
    parts += [
        text(x.at(power - low), y.start + 16, f"{2**power:,}", "middle")
        for power in range(math.ceil(low), math.floor(high) + 1)
    ]
    return [*parts, text((x.start + WIDTH) / 2, HEIGHT - 6, "rows a batch", "middle")]


def batch_key(results: Sequence[Result]) -> str:
    """Return what colours and shapes of `batch_plot` stand for."""
    rows = _timed(results)
    shown = {row["variant"] for row in rows}
    colours = {name: colour for name, colour in colours_of(results).items() if name in shown}
    return key(colours, list(dict.fromkeys(row["lengths"] for row in rows)))


def accuracy_strips(results: Sequence[Result]) -> str:
    """Return a dot for each seed and a stroke for their mean; empty without such runs."""
    runs = {
        variant: [row["accuracy"] for row in rows if "accuracy" in row]
        for variant, rows in seeds_of(results).items()
    }
    runs = {variant: scores for variant, scores in runs.items() if scores}
    if not runs:
        return ""
    every = [score for scores in runs.values() for score in scores]
    low, high = math.floor(min(every) * 500 - 0.5) / 500, math.ceil(max(every) * 500 + 0.5) / 500
    colours = colours_of(results)

    def place(score: float) -> str:
        return f"left:{100 * (score - low) / (high - low):.2f}%"

    lines = []
    for variant, scores in runs.items():
        mean = statistics.fmean(scores)
        dots = "".join(
            f'<i style="{place(score)};background:{colours[variant]}"></i>' for score in scores
        )
        drawn = f'<div class=strip>{dots}<b style="{place(mean)}"></b></div>'
        lines.append(_line(variant, drawn, f"{mean:.2%}"))
    ends = f"<span>{low:.1%}</span><span>{high:.1%}</span>"
    lines.append(_line("", f"<div class=ends>{ends}</div>", ""))
    return f"<table class=stack>{''.join(lines)}</table>"
