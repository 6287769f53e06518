"""Runs a command of the project that ends when the process that started it ends.

    python -m bert_lightning.benchmark.leash

Whoever starts it holds the other end of its standard input, and writes the command into it: one
line, a JSON list of words. Until then it imports what takes long. The system closes that end
however its holder ends, by SIGKILL too, and then this process and its workers are killed: a
measurement that nobody waits for would only disturb the next one.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import threading

from bert_lightning.cli import main


def given_words() -> list[str]:
    """Wait for a command line, and from then on for the end of who gave it; end without one."""
    line = sys.stdin.readline()
    if not line:
        sys.exit()
    threading.Thread(target=_wait_and_kill, daemon=True).start()
    return list(json.loads(line))


def _wait_and_kill() -> None:
    """Kill the group of this process, which it leads, once standard input is closed."""
    while os.read(sys.__stdin__.fileno(), 1):  # type: ignore[union-attr]
        pass
    os.killpg(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    importlib.import_module("bert_lightning.commands.run")
    sys.exit(main(given_words()))
