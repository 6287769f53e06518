"""What ended a run from outside of its own code → words: no memory, a process that was killed."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from lightning.pytorch.utilities.memory import is_oom_error

from bert_lightning.checkpoint import way_on
from bert_lightning.errors import TrainingError

_DEAD_WORKER = re.compile(r"DataLoader worker \(pid.*(killed by signal|exited unexpectedly)")
_NO_MEMORY = "ALLOC_FAILED"  # of cuBLAS and cuDNN, which take memory of their own
_LOST = re.compile(r"gloo.*(Connection|Timed out|Broken pipe|Socket)", re.DOTALL)
_LAST_WORDS_SECONDS = 5.0  # for a process that is about to end by itself


@contextlib.contextmanager
def told_in_words(
    rows: int, run: Path | None, launcher: Any = None, processes: int = 1
) -> Iterator[None]:
    """Turn what torch raises where memory or a process is gone into an error with a way on.

    No process that this one has started outlives an error: Lightning sees to it after Ctrl-C only.

    Args:
        rows: Those of a batch.
        run: Folder of a run that can go on from its last checkpoint; None for another command.
        launcher: Lightning's, of the processes; None where it has started none.
        processes: Those that train.

    Raises:
        TrainingError: Memory ran out, or a process that prepares batches or trains has died.
    """
    try:
        yield
    except BaseException as error:
        # told to stop, the others have no words, or could only say that this one is gone
        statuses = _end_started(launcher, _LAST_WORDS_SECONDS * isinstance(error, Exception))
        if not isinstance(error, RuntimeError | MemoryError):
            raise
        said = _in_words(error, rows) or _lost(error, statuses)
        if not said:
            raise
        raise TrainingError(said + (f"\n{way_on(run, processes)}" if run else "")) from error


def _end_started(launcher: Any, seconds: float) -> list[int | None]:
    """End what was started, and return how each has ended by itself, None for one that has not."""
    procs: list[subprocess.Popen[bytes]] = getattr(launcher, "procs", [])
    started = procs.copy()
    procs.clear()  # or the launcher's observer kills this process before it has said a word
    until = time.monotonic() + seconds
    while any(process.poll() is None for process in started) and time.monotonic() < until:
        time.sleep(0.05)
    statuses = [process.returncode for process in started]
    for process in started:
        process.kill()  # nothing to one that has ended
    return statuses


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


def _lost(error: BaseException, statuses: list[int | None]) -> str:
    """Return the words for processes that no longer hear one another; empty for another error."""
    if not (isinstance(error, dist.DistError) or _LOST.search(str(error))):
        return ""
    ends = [_end(number, status) for number, status in enumerate(statuses, start=1) if status != 0]
    other = (
        "another process has ended: its own words, if it had time for any, stand above; or it was"
        " silent for longer than the timeout of trainer.strategy"
    )
    return "\n".join(
        [f"processes: expected all to answer – found: {_beginning(str(error))}", *(ends or [other])]
    )


def _end(number: int, status: int | None) -> str:
    if status is None:
        return f"process {number} was silent for longer than the timeout of trainer.strategy"
    if status > 0:
        return f"process {number} ended with status {status}; its own words stand above"
    cause = ", as the system does where memory runs out" if status == -signal.SIGKILL else ""
    return f"process {number} was ended by {signal.Signals(-status).name}{cause}"


def _beginning(text: str) -> str:
    """Return the first two sentences of torch's words, without the place in its own code."""
    text = re.sub(r"^\[enforce fail[^\]]*\].*?\. |^\[\S*\] ", "", text.strip())
    return ". ".join(re.split(r"\. |\n", text)[:2]).rstrip(".") or "none left"
