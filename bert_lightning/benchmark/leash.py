"""Runs a command of the project that ends when the process that started it ends.

    python -m bert_lightning.benchmark.leash COMMAND ...

Whoever starts it holds the other end of its standard input and writes nothing. The system closes
that end however its holder ends, by SIGKILL too, and then this process and its workers are killed:
a measurement that nobody waits for would only disturb the next one.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from bert_lightning.cli import main


def end_with_starter() -> None:
    """Kill the group of this process, which it leads, once standard input is closed."""
    threading.Thread(target=_wait_and_kill, daemon=True).start()


def _wait_and_kill() -> None:
    while os.read(sys.__stdin__.fileno(), 1):  # type: ignore[union-attr]
        pass
    os.killpg(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    end_with_starter()
    sys.exit(main())
