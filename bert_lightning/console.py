"""Where the program's own lines go: standard output, or standard error for predict."""

from __future__ import annotations

import os
import stat
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


def leave_terminal() -> None:
    """Lead what goes to a terminal nowhere, now that it is closed and writing to it would fail."""
    for number in (1, 2):
        if stat.S_ISCHR(os.fstat(number).st_mode):
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)
