"""What tells the cases of a plot apart: colour for the variant, shape for the lengths, and names.

Names stand beside their points where they have room, so that a plot can be read without colours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from itertools import product
from typing import Any

from bert_lightning.inspection.plots import WIDTH, Axis

Result = dict[str, Any]
# of Okabe and Ito, who chose them for the colour-blind
COLOURS = ("#0072b2", "#e69f00", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#8c8c8c")
DASHES = {"bucketed": "", "random": "1 4", "padded": "6 3"}
HATCHES = {"bucketed": "", "random": "..", "padded": "//"}
LETTER, LINE = 6.4, 12.0  # units of the plot that a letter and a line of text take
SIDE = 8.0  # from a point to its name

Box = tuple[float, float, float, float]  # left, top, right, bottom


def colours_of(results: Sequence[Result]) -> dict[str, str]:
    """Return the colour of each variant, in the order in which they come up."""
    variants = dict.fromkeys(row["variant"] for row in results)
    return {variant: COLOURS[i % len(COLOURS)] for i, variant in enumerate(variants)}


def mark(lengths: str, x: float, y: float, colour: str, title: str = "") -> str:
    """Return a point in SVG: a disc for bucketed rows, a triangle for random, a frame for padded.

    Args:
        lengths: Of the case.
        x: Its place.
        y: Its place.
        colour: Of the variant.
        title: Shown under a mouse.
    """
    place = f'class="mark" data-x="{x:g}" data-y="{y:g}"'
    inside = f"<title>{escape(title)}</title>" if title else ""
    if lengths == "padded":
        frame = f'x="{x - 3:g}" y="{y - 3:g}" width="6" height="6"'
        return (
            f'<rect {place} {frame} fill="none" stroke="{colour}" stroke-width="2">{inside}</rect>'
        )
    if lengths == "random":
        corners = f"{x:g},{y - 4.5:g} {x + 4.5:g},{y + 3.5:g} {x - 4.5:g},{y + 3.5:g}"
        return f'<polygon {place} points="{corners}" fill="{colour}">{inside}</polygon>'
    return f'<circle {place} cx="{x:g}" cy="{y:g}" r="4" fill="{colour}">{inside}</circle>'


def key(colours: Mapping[str, str], lengths: Sequence[str]) -> str:
    """Return which colour stands for which variant and which shape for which lengths, as HTML."""
    shown = [(name, mark("bucketed", 6, 6, colour)) for name, colour in colours.items()]
    shown += [(name, mark(name, 6, 6, "currentColor")) for name in lengths]
    return " ".join(
        f'<span class=key><svg class=swatch viewBox="0 0 12 12">{drawn}</svg>{escape(name)}</span>'
        for name, drawn in shown
    )


def names_beside(points: Sequence[tuple[float, float, str]], x: Axis) -> list[str]:
    """Return the names of points, as SVG; one that would cover something is left out.

    Args:
        points: Place and name of each; an empty name only takes room.
        x: The scale on which they stand.
    """
    taken: list[Box] = [(a - 5, b - 5, a + 5, b + 5) for a, b, _ in points]
    parts = []
    for a, b, name in (point for point in points if point[2]):
        for shift, (anchor, start) in product(
            (0, -LINE, LINE), (("start", a + SIDE), ("end", a - SIDE))
        ):
            left = start - (LETTER * len(name) if anchor == "end" else 0)
            top = b + shift - LINE / 2
            box = (left, top, left + LETTER * len(name), top + LINE)
            if (
                x.start <= left
                and box[2] <= WIDTH
                and not any(_meet(box, other) for other in taken)
            ):
                taken.append(box)
                parts.append(text(start, b + shift + 4, name, anchor, "name"))
                break
    return parts


def _meet(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def text(x: float, y: float, words: str, anchor: str, kind: str = "") -> str:
    """Return words in SVG.

    Args:
        x: Their place.
        y: Their base line.
        words: What they say.
        anchor: Which end is at x.
        kind: Style class.
    """
    style = f' class="{kind}"' if kind else ""
    return f'<text{style} x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(words)}</text>'
