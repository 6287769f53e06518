"""``python -m bert_lightning`` does what ``python main.py`` does."""

import sys

from bert_lightning.cli import main

if __name__ == "__main__":
    sys.exit(main())
