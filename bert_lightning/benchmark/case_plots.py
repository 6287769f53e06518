"""Results → plots of the page: bars as HTML, which finds room for any name, points as SVG."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from bert_lightning.benchmark.case_tables import seeds_of
from bert_lightning.inspection.plots import HEIGHT, Axis, axes, svg, ticks

Result = dict[str, Any]
MEMORY_PARTS = {
    "weights_gib": "weights",
    "optimizer_gib": "gradients and optimizer",
    "activations_gib": "activations and the rest",
}
LINES = {"bucketed": 1, "random": 3, "padded": 2}  # style of each
STYLE = """
.stack { width: 100%; } .stack td:first-child { width: 34%; } .stack td:last-child { width: 90px;
  white-space: nowrap; text-align: right; } .stack div { display: flex; height: 14px; }
.stack i { display: block; height: 14px; }
:root { --three: #6b8f3a; --four: #8a6fb3; }
.b1 { background: var(--one); } .b2 { background: var(--two); } .b3 { background: var(--three); }
.k1 { color: var(--one); } .k2 { color: var(--two); } .k3 { color: var(--three); }
.dot1 { fill: var(--one); } .dot2 { fill: var(--two); } .dot3 { fill: var(--three); }
.line3 { stroke: var(--three); } .mean { stroke: var(--text); stroke-width: 2; }
.verdict { font-weight: 600; } .holds { color: var(--three); } .fails { color: var(--fault); }
.open { color: var(--two); }
"""


def label_of(row: Result) -> str:
    """Return the name of a timed case, its batch included."""
    return f"{row['variant']}, {row['lengths']}, batch {row['batch_size']}"


def epoch_bars(results: Sequence[Result]) -> str:
    """Return a bar for the seconds of an epoch of each case."""
    rows = [(label_of(row), [row["epoch_seconds"]]) for row in _timed(results)]
    return _bars(rows, "{:,.1f} s") if rows else ""


def memory_bars(results: Sequence[Result]) -> str:
    """Return a bar for the peak memory of each case, in its parts; empty without a GPU."""
    rows = [
        (label_of(row), [row[part] for part in MEMORY_PARTS])
        for row in _timed(results)
        if row.get("activations_gib") is not None
    ]
    if not rows:
        return ""
    key = ", ".join(
        f"<span class=k{number}>{name}</span>"
        for number, name in enumerate(MEMORY_PARTS.values(), 1)
    )
    return f"{_bars(rows, '{:.2f} GiB')}<p class=soft>{key}</p>"


def _bars(rows: Sequence[tuple[str, Sequence[float]]], form: str) -> str:
    most = max(sum(parts) for _, parts in rows) or 1
    lines = []
    for name, parts in rows:
        drawn = "".join(
            f'<i class=b{number} style="width:{100 * part / most:.2f}%"></i>'
            for number, part in enumerate(parts, 1)
        )
        total = form.format(sum(parts))
        lines.append(f"<tr><td>{escape(name)}</td><td><div>{drawn}</div></td><td>{total}</td></tr>")
    return f"<table class=stack>{''.join(lines)}</table>"


def _timed(results: Sequence[Result]) -> list[Result]:
    return [row for row in results if row.get("epoch_seconds") is not None]


def batch_plot(results: Sequence[Result]) -> str:
    """Return samples a second over the batch, a line for each variant and lengths."""
    rows = _timed(results)
    if not rows:
        return ""
    exponents = [math.log2(row["batch_size"]) for row in rows]
    low, high = math.floor(min(exponents)) - 0.5, math.ceil(max(exponents)) + 0.5
    x, y = axes(high - low, max(row["samples_per_second"] for row in rows) * 1.08)
    parts = _value_lines(x, y, 0.0, "{:,.0f}")
    parts += [
        _text(x.at(power - low), y.start + 16, f"{2**power:,}", "middle")
        for power in range(math.ceil(low), math.floor(high) + 1)
    ]
    parts.append(_text((x.start + x.end) / 2, HEIGHT - 6, "rows a batch", "middle"))
    lines: dict[tuple[str, str], list[tuple[float, float, str]]] = {}
    for row, exponent in zip(rows, exponents, strict=True):
        place = (x.at(exponent - low), y.at(row["samples_per_second"]), label_of(row))
        lines.setdefault((row["variant"], row["lengths"]), []).append(place)
    for (_, lengths), places in lines.items():
        kind = LINES[lengths]
        points = " ".join(f"{a},{b}" for a, b, _ in sorted(places))
        parts.append(f'<polyline class="line{kind}" points="{points}"/>')
        parts += [
            f'<circle class="dot{kind}" cx="{a}" cy="{b}" r="3.5"><title>{escape(name)}</title>'
            "</circle>"
            for a, b, name in places
        ]
    return svg("Samples a second over the batch", parts)


def accuracy_plot(results: Sequence[Result]) -> str:
    """Return the accuracy of each seed, and the mean, by variant; empty without such runs."""
    runs = {
        variant: [row["accuracy"] for row in rows if "accuracy" in row]
        for variant, rows in seeds_of(results).items()
    }
    runs = {variant: scores for variant, scores in runs.items() if scores}
    if not runs:
        return ""
    every = [score for scores in runs.values() for score in scores]
    margin = max(0.002, (max(every) - min(every)) * 0.2)
    low, high = max(0.0, min(every) - margin), min(1.0, max(every) + margin)
    x, y = axes(len(runs), high - low)
    parts = _value_lines(x, y, low, "{:.2%}")
    for number, (variant, scores) in enumerate(runs.items()):
        middle, mean = x.at(number + 0.5), y.at(statistics.fmean(scores) - low)
        name = variant.split()  # under one another, as names side by side would meet
        parts += [
            _text(middle, y.start + 15 + 12 * line, word, "middle")
            for line, word in enumerate(name)
        ]
        parts.append(
            f'<line class="mean" x1="{middle - 14}" x2="{middle + 14}" y1="{mean}" y2="{mean}"/>'
        )
        parts += [
            f'<circle class="dot1" cx="{middle}" cy="{y.at(score - low)}" r="3.5"/>'
            for score in scores
        ]
    return svg("Accuracy of each seed", parts)


def _value_lines(x: Axis, y: Axis, low: float, form: str) -> list[str]:
    """Return the level lines of a plot whose scale begins at ``low``."""
    parts = []
    for value in ticks(y.most):
        at = y.at(value)
        parts.append(f'<line class="grid" x1="{x.start}" x2="{x.end}" y1="{at}" y2="{at}"/>')
        parts.append(_text(x.start - 6, at + 4, form.format(low + value), "end"))
    return parts


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>'


def lengths_key(results: Sequence[Result]) -> str:
    """Say which colour stands for which lengths."""
    shown: Mapping[str, None] = dict.fromkeys(row["lengths"] for row in _timed(results))
    return ", ".join(f"<span class=k{LINES[name]}>{name}</span>" for name in shown)
