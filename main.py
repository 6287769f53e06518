"""Entry point: ``python main.py fit --config amp.yaml``."""

import sys

from bert_lightning.cli import main

if __name__ == "__main__":
    sys.exit(main())
