"""Where the program's own lines go: standard output, or standard error for predict."""

from __future__ import annotations

import os
import stat
import sys
from typing import TextIO

from lightning.pytorch.utilities import rank_zero_only

from bert_lightning.errors import on_screen


class Console:
    """Writes lines on the first process only.

    Args:
        to_stderr: Keep standard output free for results.
        goes_on: Leave lines out where they can be written no more, as more than they is at stake:
            whoever read them has gone, or the disk of a log file is full.
    """

    def __init__(self, to_stderr: bool = False, goes_on: bool = False) -> None:
        self.to_stderr = to_stderr
        self.goes_on = goes_on
        self.is_lost = False  # lines were left out

    @property
    def is_terminal(self) -> bool:
        """Whether a person watches the stream that lines go to."""
        return self._stream.isatty()

    @property
    def _stream(self) -> TextIO:
        return sys.stderr if self.to_stderr else sys.stdout

    @rank_zero_only
    def say(self, line: str) -> None:
        """Write a line at once, so that a log file is never behind."""
        try:
            _write(self._stream, on_screen(line))
        except OSError as error:
            if not self.goes_on:
                raise
            self._lose(error)

    def _lose(self, error: OSError) -> None:
        self.is_lost = True
        _lead_nowhere(self._stream.fileno())
        if self.to_stderr:
            return
        try:
            _write(
                sys.stderr,
                f"standard output: {error.strerror}; the run goes on without its lines",
            )
        except OSError:  # both were led to the same place
            _lead_nowhere(sys.stderr.fileno())


def leave_terminal() -> None:
    """Lead what goes to a terminal nowhere, now that it is closed and writing to it would fail."""
    for number in (1, 2):
        if stat.S_ISCHR(os.fstat(number).st_mode):
            _lead_nowhere(number)


def _write(stream: TextIO, line: str) -> None:
    stream.write(line + "\n")
    stream.flush()


def _lead_nowhere(number: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)
