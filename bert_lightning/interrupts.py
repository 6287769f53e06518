"""Signals before a run listens to them: a line, the status of the signal, and nothing left behind.

While a command is loaded, which takes seconds, they end it where it is: raised in the midst of an
import, they can come out of it as an error of another kind. From then on they raise.
"""

from __future__ import annotations

import contextlib
import os
import signal
from types import FrameType

_AS_STARTED = (signal.default_int_handler, signal.SIG_DFL)  # not where the starter ignores them


def end_at_once() -> None:
    """Let signals end this process, which holds nothing yet, until `raise_again` is called.

    What a terminal sends to all processes is for the first of them to decide: Lightning would kill
    it for the end of another.
    """
    if os.environ.get("LOCAL_RANK", "0") == "0":
        _listen(_end, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    else:
        _listen(_pass_over, signal.SIGINT, signal.SIGHUP)
    _listen(_pass_over, signal.SIGUSR1)  # it asks for a save; there is nothing to save yet


def raise_again() -> None:
    """Let the signals raise that `end_at_once` lets end the process.

    It has a folder to take back now, and other processes to end, which would wait for it.
    """
    process = os.getpid()

    def leave(number: int, _: FrameType | None) -> None:
        if os.getpid() != process:  # a worker of it, which has inherited this
            os._exit(128 + number)
        _say(number)
        raise SystemExit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is _end:
            is_ctrl_c = number == signal.SIGINT
            signal.signal(number, signal.default_int_handler if is_ctrl_c else leave)


def _listen(handler: signal._HANDLER, *numbers: signal.Signals) -> None:
    for number in numbers:
        if signal.getsignal(number) in _AS_STARTED:
            signal.signal(number, handler)


def _end(number: int, _: FrameType | None) -> None:
    _say(number)
    os._exit(128 + number)


def _pass_over(*_: object) -> None:
    pass


def _say(number: int) -> None:
    name = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
    with contextlib.suppress(OSError):  # standard error, or the terminal, is closed
        os.write(2, f"stopped by {name}\n".encode())
