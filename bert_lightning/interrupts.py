"""Ctrl-C while a command is loaded, which takes seconds: a line and status 130, no traceback.

Raised in the midst of an import, it can come out of it as an error of another kind.
"""

from __future__ import annotations

import contextlib
import os
import signal
from types import FrameType


def end_at_once() -> None:
    """Let Ctrl-C end this process, which holds nothing yet, until `raise_again` is called.

    Of several processes of a machine the first decides: Lightning would kill it for the end of
    another. Where Ctrl-C is ignored already, as with ``nohup``, it stays so.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        is_first = os.environ.get("LOCAL_RANK", "0") == "0"
        signal.signal(signal.SIGINT, _end if is_first else _leave_to_first)


def raise_again() -> None:
    """Let Ctrl-C raise KeyboardInterrupt from now on, where it has ended the process."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(number: int, _: FrameType | None) -> None:
    with contextlib.suppress(OSError):  # standard error is closed
        os.write(2, b"stopped by Ctrl-C\n")
    os._exit(128 + number)


def _leave_to_first(*_: object) -> None:
    pass
