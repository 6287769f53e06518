"""What ended a run from outside of its own code → words: no memory, a worker that was killed."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import torch
from lightning.pytorch.utilities.memory import is_oom_error

from bert_lightning.checkpoint import CHECKPOINTS, LAST
from bert_lightning.errors import TrainingError

_DEAD_WORKER = re.compile(r"DataLoader worker \(pid.*(killed by signal|exited unexpectedly)")
_NO_MEMORY = "ALLOC_FAILED"  # of cuBLAS and cuDNN, which take memory of their own


@contextlib.contextmanager
def told_in_words(rows: int, run: Path | None) -> Iterator[None]:
    """Turn what torch raises where memory or a worker is gone into an error with a way on.

    Args:
        rows: Those of a batch.
        run: Folder of a run that can go on from its last checkpoint; None for another command.

    Raises:
        TrainingError: Memory ran out, or a process that prepares batches has died.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if said := _in_words(error, rows):
            raise TrainingError(said + (_way_on(run) if run else "")) from error
        raise


def _in_words(error: BaseException, rows: int) -> str:
    text, found = str(error), _beginning(str(error))
    if _DEAD_WORKER.search(text):
        return (
            f"data.num_workers: expected its processes to live – found: {found}\n"
            "where memory runs out the system kills one: take fewer (--data.num_workers 0 is the"
            " fastest for rows that are tokenised), or give the machine or container more memory"
        )
    is_full = isinstance(error, MemoryError | torch.OutOfMemoryError) or _NO_MEMORY in text
    if not (is_full or is_oom_error(error)):
        return ""
    return (
        f"data.batch_size: expected memory for {rows} rows at once – found: {found}\n"
        "take a smaller --data.batch_size with more --trainer.accumulate_grad_batches, as"
        " --find_batch.enabled true finds them on a GPU; or --config lowmem.yaml, or a shorter"
        " --data.max_length"
    )


def _beginning(text: str) -> str:
    """Return the first two sentences of torch's words, without the place in its own code."""
    text = re.sub(r"^\[enforce fail[^\]]*\].*?\. ", "", text.strip())
    return ". ".join(re.split(r"\. |\n", text)[:2]).rstrip(".") or "none left"


def _way_on(run: Path) -> str:
    last = run / CHECKPOINTS / LAST
    if not last.exists():
        return "\nno checkpoint was written yet: begin again"
    return f"\nthe last checkpoint is {last}: go on with fit --ckpt_path {run}"
