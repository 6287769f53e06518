"""What a result says → the same without the folders of the machine that measured it."""

from __future__ import annotations

import re

_FOLDERS = re.compile(r"""(?<![\w.:/~-])(?:~|[A-Za-z]:)?/(?:[^/\s"',={}]+/)*(?=[^/\s"',={}])""")


def without_places(text: str) -> str:
    """Leave of each absolute path only its name.

    >>> without_places("fit --data.path=/home/me/news --config {path: /data/base}, 5 samples/s")
    'fit --data.path=news --config {path: base}, 5 samples/s'
    """
    return _FOLDERS.sub("", text)
