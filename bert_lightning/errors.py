"""Errors that a user can act on.

Every message has one shape: the full option or ``file:line`` – what was expected – what was found –
what to do. Validators gather all faults of a kind and raise once; ``main`` prints the message
without a traceback and exits with status 1.
"""

from __future__ import annotations

from collections.abc import Sequence

SHOWN_PROBLEMS = 20  # a screen; the rest is counted
LONGEST_LINE = 600  # characters
_SIGNS = (  # to a terminal more than text: controls, ends of lines, marks that turn its direction
    *(code for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\t\n"),
    *(0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A)),
    *range(0xD800, 0xE000),  # halves of characters, which cannot even be written
)
_ESCAPED = {code: ascii(chr(code))[1:-1] for code in _SIGNS}


class BertLightningError(Exception):
    """Base of all errors that are shown to the user as one screen of text."""


class ConfigError(BertLightningError):
    """An option or a combination of options that cannot work."""


class BackboneError(BertLightningError):
    """A pretrained model or tokenizer that is missing, incomplete or does not fit."""


class CheckpointError(BertLightningError):
    """A checkpoint that is missing, damaged, foreign or does not fit the data."""


class TrainingError(BertLightningError):
    """A run that cannot go on, such as one whose loss is no longer a number."""


class DataError(BertLightningError):
    """Faults of the user's data, gathered.

    Args:
        problems: One line each, ``file:line: expected – found – remedy``.
        hint: What to do about all of them, shown once at the end.
    """

    def __init__(self, problems: Sequence[str], hint: str = "") -> None:
        self.problems = list(problems)
        shown = [_shortened(problem) for problem in self.problems[:SHOWN_PROBLEMS]]
        rest = len(self.problems) - len(shown)
        lines = [*shown, *([f"… and {rest:,} more of this kind"] if rest else [])]
        hints = [_shortened(line) for line in hint.split("\n")] if hint else []
        super().__init__("\n".join([*lines, *hints]))


def on_screen(text: str) -> str:
    r"""Return lines as a terminal can show them: file names and data may hold anything.

    >>> on_screen("a\x1b[2Jb")
    'a\\x1b[2Jb'
    """
    return "\n".join(map(_shortened, text.translate(_ESCAPED).split("\n")))


def _shortened(line: str) -> str:
    """Return a line that a screen has room for; both ends of a problem say something."""
    middle = " … "
    half = (LONGEST_LINE - len(middle)) // 2
    return line if len(line) <= LONGEST_LINE else f"{line[:half]}{middle}{line[-half:]}"
