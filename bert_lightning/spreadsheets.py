"""Texts → cells of a CSV file that a spreadsheet shows and never runs."""

from __future__ import annotations

_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def is_formula(text: str) -> bool:
    """Tell whether a spreadsheet may take a text for a formula, which can send what it holds."""
    return text.startswith(_STARTS)


def as_cell(text: str) -> str:
    """Return a text with an apostrophe before it where it would be taken for a formula.

    >>> as_cell("=1+1"), as_cell("1+1")
    ("'=1+1", '1+1')
    """
    return f"'{text}" if is_formula(text) else text
