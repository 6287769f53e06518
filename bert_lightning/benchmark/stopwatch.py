"""Steps of training → samples a second, measured alike for the project and for its peers.

The device is waited for at both ends of a window and after the first step, never in between. What
a step holds is counted on the host.
"""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.profilers import Profiler
from typing_extensions import override

GIB = 2**30
GRAPH_STEPS = 2  # of a shape, before its graph is replayed
NO_END = 1e9  # seconds: a window ends after its steps alone
REPEATED_SECONDS = 20.0  # windows that are longer in all are not repeated


@dataclass(frozen=True)
class Extent:
    """How much is measured.

    Args:
        warmup: Steps that are not measured, at least 1.
        steps: Steps of a window.
        seconds: A window is over after this many, with fewer steps too.
        repeats: Most windows.
        settling: If given, the steps of the warm-up are those in a row without a new shape, and it
            is over after this many seconds, with fewer steps too.
    """

    warmup: int = 150
    steps: int = 400
    seconds: float = 15.0
    repeats: int = 5
    settling: float | None = None


@dataclass
class Window:
    """Steps between two waits for the device; rows and pieces are real ones, not padding.

    ``positions`` are pieces and padding, ``joules`` what the device took, where it says so.
    """

    rows: int = 0
    pieces: int = 0
    positions: int = 0
    steps: int = 0
    seconds: float = 0.0
    joules: float | None = None


class Stopwatch:
    """Counts steps, and writes what they took.

    Args:
        extent: How much is measured.
        started: time.time() when the process was started.
        output: JSON file that is written at the end.
        joules: Returns what the device has taken so far, or None where it does not say so.
    """

    def __init__(
        self,
        extent: Extent,
        started: float,
        output: Path,
        joules: Callable[[], float | None] = lambda: None,
    ) -> None:
        self.extent = extent
        self.started = started
        self.output = output
        self.joules = joules
        self.facts: dict[str, Any] = {}  # written beside what is measured
        self.windows: list[Window] = []
        self._seen = 0
        self._first_step_seconds = 0.0
        self._ready_seconds = 0.0
        self._window = Window()
        self._begun = 0.0
        self._joules: float | None = None
        self._is_warm = False
        self._shapes: Counter[int] = Counter()
        self._settled = 0  # steps in a row whose shape had come up twice before

    def count(self, rows: int, pieces: int, positions: int = 0) -> bool:
        """Count a step that was launched; tell whether all is measured."""
        self._seen += 1
        if self._seen == 1:
            wait_for_device()
            self._first_step_seconds = time.time() - self.started
            self._begun = time.perf_counter()
        if not self._is_warm:
            self._is_warm = self._has_settled(positions)
            if self._is_warm:
                self._begin()
                self._ready_seconds = time.time() - self.started
            return False
        window = self._window
        window.rows += rows
        window.pieces += pieces
        window.positions += positions
        window.steps += 1
        taken = time.perf_counter() - self._begun
        if window.steps < self.extent.steps and taken < self.extent.seconds:
            return False
        wait_for_device()
        window.seconds = time.perf_counter() - self._begun
        joules = self.joules()
        if joules is not None and self._joules is not None:
            window.joules = joules - self._joules
        self.windows.append(window)
        if self._is_repeated():
            self._begin()
            return False
        self._write()
        return True

    def _has_settled(self, positions: int) -> bool:
        if self.extent.settling is None:
            return self._seen >= self.extent.warmup
        # a captured step compiles a shape the first time, and records it the second time
        self._settled = self._settled + 1 if self._shapes[positions] >= GRAPH_STEPS else 0
        self._shapes[positions] += 1
        warming = time.perf_counter() - self._begun
        return self._settled >= self.extent.warmup or warming > self.extent.settling

    def _begin(self) -> None:
        wait_for_device()
        self._window = Window()
        self._joules = self.joules()
        self._begun = time.perf_counter()

    def _is_repeated(self) -> bool:
        seconds = [window.seconds for window in self.windows]
        return len(seconds) < self.extent.repeats and sum(seconds) + seconds[-1] < REPEATED_SECONDS

    def _write(self) -> None:
        by_speed = sorted(self.windows, key=lambda window: window.rows / window.seconds)
        median = by_speed[(len(by_speed) - 1) // 2]
        write_measured(
            self.output,
            {
                "samples_per_second": round(median.rows / median.seconds, 1),
                "pieces_per_second": round(median.pieces / median.seconds),
                "steps": median.steps,
                "seconds": round(median.seconds, 3),
                "repeats": [round(w.rows / w.seconds, 1) for w in self.windows],
                "first_step_seconds": round(self._first_step_seconds, 1),
                "ready_seconds": round(self._ready_seconds, 1),
                "extent": asdict(self.extent),
                **_more(median),
                **self.facts,
            },
        )


def _more(window: Window) -> dict[str, Any]:
    """Return what only some count."""
    more: dict[str, Any] = {}
    if window.positions:
        more["positions_per_second"] = round(window.positions / window.seconds)
        more["padding"] = round(1 - window.pieces / window.positions, 4)
    if window.joules is not None:
        more["joules_per_sample"] = window.joules / window.rows
    return more


class StepTimer(Callback):
    """Ends a fit when its steps are measured.

    Args:
        started: time.time() when the process was started.
        output: JSON file that is written.
        warmup: Steps that are not measured.
        steps: Steps of a window.
        seconds: A window is over after this many, with fewer steps too.
        repeats: Most windows.
        settling: Most seconds of a warm-up whose steps are those without a new shape, if given.
    """

    def __init__(
        self,
        started: float,
        output: str,
        warmup: int = 150,
        steps: int = 400,
        seconds: float = 15.0,
        repeats: int = 5,
        settling: float | None = None,
    ) -> None:
        extent = Extent(warmup, steps, seconds, repeats, settling)
        self.watch = Stopwatch(extent, started, Path(output))
        self._is_over = False

    @override
    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self._is_over:
            return
        rows = batch["rows"]  # of a padded-up batch the real ones
        lengths = trainer.datamodule.rows("train").lengths  # type: ignore[attr-defined]
        pieces = int(lengths[rows].sum())
        self._is_over = self.watch.count(len(rows), pieces, math.prod(batch["input_ids"].shape))
        if self._is_over:
            trainer.should_stop = True


class ProcessTimer(StepTimer):
    """Times one of several processes: each writes a file, all stop after the same step.

    By the clock they would part.

    Args:
        started: time.time() when the command was started.
        output: JSON file; the number of the process is put before its suffix.
        warmup: Steps that are not measured.
        steps: Steps of the window.
    """

    def __init__(self, started: float, output: str, warmup: int, steps: int) -> None:
        super().__init__(started, output, warmup, steps, NO_END, repeats=1)

    @override
    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self.watch.output = self.watch.output.with_suffix(f".{trainer.global_rank}.json")


class PredictionTimer(Profiler):
    """Times predict: from before the texts are read until after the result is written.

    Callbacks hear of a run only when its texts are tokenised, a profiler before.

    Args:
        output: JSON file that is written.
    """

    def __init__(self, output: str) -> None:
        super().__init__()
        self.output = Path(output)
        self._times: dict[str, float] = {}

    @override
    def setup(self, stage: str, local_rank: int | None = None, log_dir: str | None = None) -> None:
        super().setup(stage, local_rank, log_dir)
        self._times["begin"] = time.perf_counter()

    @override
    def start(self, action_name: str) -> None:
        hook = action_name.rpartition(".")[2]
        if hook in ("on_predict_epoch_start", "on_predict_epoch_end"):
            self._times.setdefault(hook, time.perf_counter())  # of all callbacks the first

    @override
    def stop(self, action_name: str) -> None:
        """Nothing."""

    @override
    def describe(self) -> None:
        loop = self._times["on_predict_epoch_end"] - self._times["on_predict_epoch_start"]
        write_measured(
            self.output,
            {"seconds": time.perf_counter() - self._times["begin"], "loop_seconds": loop},
        )


def wait_for_device() -> None:
    """Wait until the GPU has done all that was launched; without a GPU nothing waits."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def write_measured(output: Path, measured: dict[str, Any]) -> None:
    """Write what was measured, with the peak memory of this process."""
    peaks: dict[str, float | None] = {"allocated_gib": None, "reserved_gib": None}
    if torch.cuda.is_available():
        peaks = {
            "allocated_gib": round(torch.cuda.max_memory_allocated() / GIB, 2),
            "reserved_gib": round(torch.cuda.max_memory_reserved() / GIB, 2),
        }
    output.write_text(json.dumps({**measured, **peaks}) + "\n", encoding="utf-8")
