"""Text files that are written beside their place and then take it: whole, or as they were."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO


@contextlib.contextmanager
def replacing(path: Path, **how: Any) -> Iterator[TextIO]:
    """Open what takes the place of a text file at the end; an error leaves the old one alone.

    Args:
        path: The file.
        how: Encoding and the like, as for ``open``.
    """
    beside = path.with_name(f".{path.name}.tmp")
    try:
        with beside.open("w", **how) as stream:
            yield stream
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
