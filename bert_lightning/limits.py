"""What a limit of the system (``ulimit``) has ended → words."""

from __future__ import annotations

import errno
import os
import resource


def reached(error: BaseException) -> str:
    """Return the words for an error that comes from a limit; empty for another one."""
    if _is(errno.EMFILE, error):
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return (
            f"open files: expected to open one more – found the limit of {limit:,} (ulimit -n)\n"
            "raise it (ulimit -n 4096), or take fewer processes (--data.num_workers)"
        )
    if _is(errno.EFBIG, error) and (limit_of_size := size_limit()):
        name = getattr(error, "filename", None)
        return (
            f"{os.fsdecode(name) if name else 'output'}: expected to write a whole file – found"
            f" {limit_of_size}\nraise it (ulimit -f unlimited)"
        )
    return ""


def size_limit() -> str:
    """Return the words for the limit of the size of a file; empty if there is none."""
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    is_one = limit != resource.RLIM_INFINITY
    return f"the limit of {limit >> 10:,} KiB a file (ulimit -f)" if is_one else ""


def _is(number: int, error: BaseException) -> bool:
    """Tell whether an error has a number of the system, or its name in a library's own words."""
    return getattr(error, "errno", None) == number or os.strerror(number) in str(error)
