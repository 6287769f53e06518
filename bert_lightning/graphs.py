"""CUDA graphs: work that is recorded once and then replayed, and the place of its inputs."""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from bert_lightning.data.encoding import IGNORED_LABEL, Batch

UNMASKED_FROM = 64  # pieces; attention without a mask takes 4 % off a step of 256 × 128


def rounded_length(length: int, longest: int) -> int:
    """Return the length that a batch is filled up to: exact up to 32, then in 16 steps an octave.

    >>> [rounded_length(length, 512) for length in (7, 31, 33, 100, 129, 511)]
    [7, 31, 34, 100, 136, 512]
    """
    step = max(1, 1 << max(0, (length - 1).bit_length() - 5))
    return min(-(-length // step) * step, max(length, longest))


class Kind(NamedTuple):
    """What a graph is recorded for.

    Args:
        rows: Rows, those that fill up included.
        length: Pieces a row, rounded up.
        is_full: Whether there is no padding, so that attention needs no mask.
        is_first: Whether a step begins with it.
    """

    rows: int
    length: int
    is_full: bool
    is_first: bool = True


def kind_of(batch: Batch, filled: int, longest: int, is_first: bool = True) -> Kind:
    """Return what a graph for a batch must be recorded for.

    Args:
        batch: The batch.
        filled: Least rows of a graph.
        longest: Most pieces a row.
        is_first: Whether a step begins.
    """
    rows, length = batch["input_ids"].shape
    kind = Kind(max(rows, filled), rounded_length(length, longest), False, is_first)
    is_full = batch.get("is_full", False) and (rows, length) == kind[:2]
    return kind._replace(is_full=is_full and length >= UNMASKED_FROM)


class Studio:
    """Stream and memory that graphs share, which never run at the same time.

    Args:
        device: Without CUDA nothing is recorded.
    """

    def __init__(self, device: torch.device) -> None:
        self.graphs = 0
        self.seconds = 0.0
        self._stream: Any = None
        if device.type == "cuda":
            # one for all: memory that is freed on a stream serves that stream alone
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            self._pool = torch.cuda.graph_pool_handle()

    def record(self, work: Callable[[], None]) -> torch.cuda.CUDAGraph | None:
        """Return a graph of what ``work`` launches, which has not run yet."""
        if self._stream is None:
            return None
        started = time.perf_counter()
        torch.cuda.empty_cache()  # what was run before took memory that the graph cannot use
        graph = torch.cuda.CUDAGraph()
        self._stream.wait_stream(torch.cuda.current_stream())
        gc.disable()  # what it frees would be freed inside the graph
        try:
            with torch.cuda.stream(self._stream):
                # other threads may go on: they fill pinned memory
                graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
                try:
                    work()
                except BaseException:
                    with contextlib.suppress(RuntimeError):  # of the recording, not its cause
                        graph.capture_end()
                    raise
                graph.capture_end()
        finally:
            gc.enable()
        torch.cuda.current_stream().wait_stream(self._stream)
        self.graphs += 1
        self.seconds += time.perf_counter() - started
        return graph


class Recording:
    """Work on the device that is launched at first, then recorded, and from then on replayed.

    Args:
        work: Launches kernels that read and write tensors which stay where they are; returns
            nothing and waits for nothing.
        studio: Where it is recorded.
        launches: How often it is launched before; at least once, to compile what is missing.
    """

    def __init__(self, work: Callable[[], None], studio: Studio, launches: int = 1) -> None:
        self.work = work
        self.studio = studio
        self._graph: torch.cuda.CUDAGraph | None = None
        self._launches_left = launches

    @property
    def is_recorded(self) -> bool:
        """Whether the work is replayed from now on."""
        return self._graph is not None

    def __call__(self) -> None:
        """Do the work."""
        if self._graph is None and not self._launches_left:
            self._graph = self.studio.record(self.work)
        if self._graph is None:
            self.work()
            self._launches_left = max(0, self._launches_left - 1)
        else:
            self._graph.replay()


class Inputs:
    """The place of a batch of one shape on the device."""

    def __init__(self, rows: int, length: int, device: torch.device) -> None:
        self.ids = torch.zeros(rows, length, dtype=torch.int64, device=device)
        self.mask = torch.zeros_like(self.ids)
        self.labels = torch.full((rows,), IGNORED_LABEL, dtype=torch.int64, device=device)
        self.count = torch.zeros((), device=device)  # rows of the batch

    def take(self, batch: Batch) -> None:
        """Copy a batch; what it does not fill counts for nothing."""
        ids, mask = batch["input_ids"], batch["attention_mask"]
        rows, length = ids.shape
        self.count.fill_(rows)
        if ids.shape != self.ids.shape:
            self.ids.zero_()
            self.mask.zero_()
            self.labels.fill_(IGNORED_LABEL)
        self.ids[:rows, :length].copy_(ids, non_blocking=True)
        self.mask[:rows, :length].copy_(mask, non_blocking=True)
        if "labels" in batch:
            self.labels[:rows].copy_(batch["labels"], non_blocking=True)
