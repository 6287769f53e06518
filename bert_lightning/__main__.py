"""``python -m bert_lightning``, ``python main.py`` and ``bert-lightning`` all begin here."""

import sys

from bert_lightning.interrupts import end_at_once


def start() -> int:
    """Run the command line of this process, and return its exit status."""
    end_at_once()
    from bert_lightning.cli import main

    return main()


if __name__ == "__main__":
    sys.exit(start())
