"""Entry point: ``python main.py fit --config amp.yaml``."""

import sys

from bert_lightning.__main__ import start

if __name__ == "__main__":
    sys.exit(start())
