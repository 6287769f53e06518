"""Keeps the best and the last state of a run."""

from __future__ import annotations

import math
import os
import shutil
import time
from pathlib import Path
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint
from typing_extensions import override

from bert_lightning.callbacks.run_folder import RunFolder
from bert_lightning.checkpoint import BEST, LAST

MONITOR = "val/macro_f1"


class BestAndLast(Checkpoint):
    """Writes checkpoints/last.ckpt and checkpoints/best.ckpt.

    ``last`` is written at every validation end and every so many seconds, whatever the score, so it
    is always the newest state. ``best`` has the highest val/macro_f1, the earliest of equals; it is
    never one whose score is not a number.

    Args:
        run: Where the run writes.
        save_every_seconds: Most seconds of training that a killed run can lose.
    """

    def __init__(self, run: RunFolder, save_every_seconds: float) -> None:
        self.run = run
        self.save_every_seconds = save_every_seconds
        self.best_score: float | None = None
        self._saved_at = time.monotonic()
        self._is_best = False
        self._first_step = 0

    @property
    def best_path(self) -> Path | None:
        """The best checkpoint, or None if none was written."""
        path = self.run.checkpoints / BEST
        return path if path.is_file() else None

    @override
    def state_dict(self) -> dict[str, Any]:
        return {"best_score": self.best_score}

    @override
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.best_score = state_dict["best_score"]

    @override
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._saved_at = time.monotonic()
        self._first_step = trainer.global_step
        if not (self.run.checkpoints / BEST).is_file():  # resumed into a folder of its own
            self.best_score = None

    @override
    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        done = batch_idx + 1
        # validation comes next and saves when it is over; Lightning would not go back to it
        loop: Any = trainer.fit_loop
        if trainer.is_last_batch or loop.epoch_loop._should_check_val_fx(loop._data_fetcher):
            return
        # the processes agree on a save through a broadcast, which is too dear for every step
        if done % trainer.log_every_n_steps or done % trainer.accumulate_grad_batches:  # type: ignore[attr-defined]
            return
        due = time.monotonic() - self._saved_at >= self.save_every_seconds
        if trainer.strategy.broadcast(due):
            self._save(trainer)

    @override
    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.sanity_checking or trainer.state.fn != "fit":
            return
        score = float(trainer.callback_metrics.get(MONITOR, math.nan))
        self._is_best = math.isfinite(score) and (
            self.best_score is None or score > self.best_score
        )
        if self._is_best:
            self.best_score = score
        # what counts epochs (early stopping) has not counted this one before its end
        if not trainer.is_last_batch:
            self._save_scored(trainer)

    @override
    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.global_step != self._first_step:  # else resumed with nothing left to train
            self._save_scored(trainer)

    def _save_scored(self, trainer: Trainer) -> None:
        self._save(trainer)
        if self._is_best and trainer.is_global_zero and not trainer.fast_dev_run:  # type: ignore[attr-defined]
            _copy(self.run.checkpoints / LAST, self.run.checkpoints / BEST)
        self._is_best = False
        trainer.strategy.barrier()

    def _save(self, trainer: Trainer) -> None:
        if not trainer.fast_dev_run:  # type: ignore[attr-defined]
            trainer.save_checkpoint(self.run.checkpoints / LAST)
        self._saved_at = time.monotonic()


def _copy(source: Path, target: Path) -> None:
    """Make target the same file as source at one stroke; a second link costs no writing."""
    beside = target.with_suffix(".tmp")
    beside.unlink(missing_ok=True)
    try:
        os.link(source, beside)
    except OSError:  # a file system without links
        shutil.copyfile(source, beside)
    beside.replace(target)
