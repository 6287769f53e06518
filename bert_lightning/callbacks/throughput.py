"""Rows and seconds of each training epoch → samples per second."""

from __future__ import annotations

import time
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from typing_extensions import override


class Throughput(Callback):
    """Logs train/samples_per_second at the end of each epoch.

    Rows are real rows of all processes; the time of validation and of saving inside the epoch is
    left out. The device is waited for once an epoch, not once a step.
    """

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.samples_per_second: list[float] = []
        self._rows = 0
        self._seconds = 0.0
        self._started: float | None = None

    @override
    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._rows, self._seconds = 0, 0.0

    @override
    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if self._started is None:  # also where a resumed epoch begins in its middle
            self._started = _now(pl_module.device)

    @override
    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._rows += len(batch["rows"])

    @override
    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.training or trainer.validating:
            self._stop(pl_module)

    @override
    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        self._stop(pl_module)

    @override
    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._stop(pl_module)
        if not self._rows:  # resumed after the last batch of an epoch
            return
        rows = self._rows * trainer.world_size
        self.seconds.append(self._seconds)
        self.samples_per_second.append(rows / max(self._seconds, 1e-9))
        pl_module.log("train/samples_per_second", self.samples_per_second[-1])

    def _stop(self, pl_module: LightningModule) -> None:
        if self._started is not None:
            self._seconds += _now(pl_module.device) - self._started
        self._started = None


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
