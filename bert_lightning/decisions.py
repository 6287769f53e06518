"""Decisions that the first process takes for all.

Lightning's launcher starts the other processes of a machine as copies of the command line. What
must not be decided twice (the number of the run, the newest checkpoint) is left for them in the
environment.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

_PREFIX = "BERT_LIGHTNING_DECIDED_"


def decide_once(name: str, decide: Callable[[], str]) -> str:
    """Return what the first process decided; elsewhere started processes decide for themselves.

    Args:
        name: What is decided, upper case.
        decide: Called on the first process.
    """
    key = _PREFIX + name
    if is_first_process() or key not in os.environ:
        os.environ[key] = decide()
    return os.environ[key]


def is_first_process() -> bool:
    """Tell whether this process decides: rank 0 of the first machine, however it was started."""
    from lightning.pytorch.utilities import rank_zero_only  # slow to load

    rank: int = getattr(rank_zero_only, "rank", 0)  # set by Lightning on import
    # a machine that Lightning's own launcher has not yet given ranks says only its number
    return rank == 0 and os.environ.get("NODE_RANK", "0") == "0"


def decided(name: str) -> str | None:
    """Return what was decided in this command, or None."""
    return os.environ.get(_PREFIX + name)


def without_decisions(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which another command decides for itself."""
    return {key: value for key, value in environment.items() if not key.startswith(_PREFIX)}


def forget_decisions() -> None:
    """Remove all decisions, so that the next command in this process starts afresh."""
    for key in [key for key in os.environ if key.startswith(_PREFIX)]:
        del os.environ[key]
