"""Where the program's own lines go: standard output, or standard error for predict."""

from __future__ import annotations

import sys

from lightning.pytorch.utilities import rank_zero_only

from bert_lightning.errors import on_screen


class Console:
    """Writes lines on the first process only.

    Args:
        to_stderr: Keep standard output free for results.
    """

    def __init__(self, to_stderr: bool = False) -> None:
        self.to_stderr = to_stderr

    @property
    def is_terminal(self) -> bool:
        """Whether a person watches the stream that lines go to."""
        return (sys.stderr if self.to_stderr else sys.stdout).isatty()

    @rank_zero_only
    def say(self, line: str) -> None:
        """Write a line at once, so that a log file is never behind."""
        stream = sys.stderr if self.to_stderr else sys.stdout
        stream.write(on_screen(line) + "\n")
        stream.flush()
