"""Numbers → SVG that a browser draws with its own fonts, so that Chinese has no empty boxes.

A plot is 360 units wide, a phone's width, with text in the same size as the page's. Colours come
from the page's style, which knows light and dark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from bert_lightning.inspection.results import Bar

WIDTH, HEIGHT = 360.0, 200.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 56.0, 14.0, 10.0, 40.0


@dataclass(frozen=True)
class Axis:
    """A scale from 0 to ``most`` over a stretch of the plot."""

    start: float
    end: float
    most: float

    def at(self, value: float) -> float:
        """Return where a value lies."""
        return round(self.start + (self.end - self.start) * value / self.most, 2)


def ticks(most: float, wanted: int = 5) -> list[float]:
    """Return round numbers from 0 to at most ``most``, about as many as wanted.

    >>> ticks(128)
    [0, 50, 100]
    """
    step = 1e-9
    while most / step > wanted:
        for factor in (2, 2.5, 2):  # 1, 2, 5, 10
            step *= factor
            if most / step <= wanted:
                break
    step = round(step, 9)
    values = [round(step * i, 9) for i in range(int(most / step + 1e-9) + 1)]
    return [int(value) if value == int(value) else value for value in values]


def axes(most_x: float, most_y: float, height: float = HEIGHT) -> tuple[Axis, Axis]:
    """Return the scales of a plot, from 0 to the most of each."""
    return (
        Axis(_LEFT, WIDTH - _RIGHT, most_x or 1),
        Axis(height - _BOTTOM, _TOP, most_y or 1),
    )


def _frame(x: Axis, y: Axis, x_name: str, percent: bool) -> list[str]:
    parts = []
    for value in ticks(y.most):
        label = f"{value:.3%}".rstrip("0%").rstrip(".") + "%" if percent else f"{value:,}"
        label = "0%" if percent and not value else label
        at = y.at(value)
        parts.append(f'<line class="grid" x1="{x.start}" x2="{x.end}" y1="{at}" y2="{at}"/>')
        parts.append(f'<text x="{x.start - 6}" y="{at + 4}" text-anchor="end">{label}</text>')
    for value in ticks(x.most):
        parts.append(
            f'<text x="{x.at(value)}" y="{y.start + 16}" text-anchor="middle">{value:,}</text>'
        )
    middle = (x.start + x.end) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">{x_name}</text>')
    return parts


def _markers(x: Axis, y: Axis, markers: Mapping[str, float]) -> list[str]:
    return [
        f'<line class="{kind}" x1="{x.at(value)}" x2="{x.at(value)}" y1="{y.start}" y2="{y.end}"/>'
        for kind, value in markers.items()
    ]


def svg(title: str, parts: Sequence[str], height: float = HEIGHT) -> str:
    """Return a picture of parts.

    Args:
        title: Read out instead of the picture.
        parts: SVG elements in units of the plot.
        height: Of the plot.
    """
    return (
        f'<svg viewBox="0 0 {WIDTH:g} {height:g}" role="img"><title>{escape(title)}</title>'
        f"{''.join(parts)}</svg>"
    )


def length_plot(title: str, bars: Sequence[Bar], markers: Mapping[str, float]) -> str:
    """Return rows by length with upright lines.

    Args:
        title: Read out instead of the picture.
        bars: Rows of each stretch of lengths.
        markers: Style class and length of each line.
    """
    x, y = axes(
        max([bar.end + 1 for bar in bars] + list(markers.values())), max(bar.rows for bar in bars)
    )
    drawn = [
        f'<rect class="fill1" x="{x.at(bar.start)}" y="{y.at(bar.rows)}"'
        f' width="{max(0.5, x.at(bar.end + 1) - x.at(bar.start) - 0.5):.2f}"'
        f' height="{y.start - y.at(bar.rows):.2f}"/>'
        for bar in bars
        if bar.rows
    ]
    return svg(title, [*_frame(x, y, "pieces", False), *drawn, *_markers(x, y, markers)])


def share_plot(
    title: str,
    lengths: Sequence[int],
    lines: Mapping[str, Sequence[float]],
    markers: Mapping[str, float],
) -> str:
    """Return shares over max_length as lines.

    Args:
        title: Read out instead of the picture.
        lengths: Values of max_length, ascending.
        lines: Style class and shares (0 to 1) of each line.
        markers: Style class and length of each upright line.
    """
    x, y = axes(
        max([*lengths, *markers.values()]), max(share for line in lines.values() for share in line)
    )
    drawn = [
        f'<polyline class="{kind}" points="{points}"/>'
        for kind, line in lines.items()
        for points in [" ".join(f"{x.at(a)},{y.at(b)}" for a, b in zip(lengths, line, strict=True))]
    ]
    return svg(title, [*_frame(x, y, "max_length", True), *drawn, *_markers(x, y, markers)])
