"""Keeps the best and the last state of a run."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint
from typing_extensions import override

from bert_lightning.callbacks.run_folder import RunFolder
from bert_lightning.checkpoint import BEST, LAST, PREVIOUS, copy_at_once, spoilt, way_on
from bert_lightning.errors import TrainingError

MONITOR = "val/macro_f1"


class BestAndLast(Checkpoint):
    """Writes checkpoints/last.ckpt, previous.ckpt and best.ckpt.

    ``last`` is written at every validation end and every so many seconds or steps, whatever the
    score, so it is always the newest state; ``previous`` is the one before, for the case that the
    disk damages it. ``best`` has the highest val/macro_f1, the earliest of equals; it is
    never one whose score is not a number.

    Args:
        run: Where the run writes.
        save_every_seconds: Most seconds of training that a killed run can lose.
        save_every_steps: Steps between two saves, besides; None for none.
    """

    def __init__(
        self, run: RunFolder, save_every_seconds: float, save_every_steps: int | None = None
    ) -> None:
        self.run = run
        self.save_every_seconds = save_every_seconds
        self.save_every_steps = save_every_steps
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
    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        # Lightning passes over a state that is missing, and a worse one could become the best
        if trainer.training and not checkpoint["callbacks"].get(self.state_key):
            raise LookupError(f"no state of {self.state_key} in callbacks")

    @override
    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Write no state that a run cannot go on from: a step can spoil it, its loss a number."""
        if name := spoilt(checkpoint):
            way = way_on(self.run.path, trainer.world_size)
            raise TrainingError(
                f"{name}: expected numbers – found others after step {trainer.global_step:,}, which"
                " is not saved: a gradient, or the weights, grew too large\n"
                f"{way}, with a lower --model.learning_rate or longer --model.warmup_ratio"
            )

    @override
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        score = state_dict["best_score"]
        self.best_score = None if score is None else float(score)

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
        if done % trainer.accumulate_grad_batches:
            return
        if self.save_every_steps and trainer.global_step % self.save_every_steps == 0:
            self.save(trainer)
            return
        # the processes agree on a save through a broadcast, which is too dear for every step
        if done % trainer.log_every_n_steps:  # type: ignore[attr-defined]
            return
        due = time.monotonic() - self._saved_at >= self.save_every_seconds
        if trainer.strategy.broadcast(due):
            self.save(trainer)

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
        self.save(trainer)
        if self._is_best and trainer.is_global_zero and not trainer.fast_dev_run:  # type: ignore[attr-defined]
            copy_at_once(self.run.checkpoints / LAST, self.run.checkpoints / BEST)
        self._is_best = False
        trainer.strategy.barrier()

    def save(self, trainer: Trainer) -> None:
        """Write the newest state; called on all processes."""
        if not trainer.fast_dev_run:  # type: ignore[attr-defined]
            last = self.run.checkpoints / LAST
            if trainer.is_global_zero:  # not the folder of the run, if somebody has removed it
                self.run.checkpoints.mkdir(exist_ok=True)
            if trainer.is_global_zero and last.is_file():
                copy_at_once(last, self.run.checkpoints / PREVIOUS)
            trainer.save_checkpoint(self.run.checkpoints / LAST)
        self._saved_at = time.monotonic()
