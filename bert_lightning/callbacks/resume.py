"""Lets a run that was cut off inside an epoch go on with the next unseen batch."""

from __future__ import annotations

import operator
import random
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping
from lightning.pytorch.callbacks.early_stopping import EarlyStoppingReason
from typing_extensions import override

from bert_lightning.console import Console

RANDOM_STATES = "random_states"
BATCHES = "batches_an_epoch"


class ExactResume(Callback):
    """Keeps the random states of all processes, and brings the order of the rows to where it was.

    The rows of an epoch follow from seed and epoch, so that the number of batches that are done is
    all there is to know of them. Lightning counts these, but starts its loaders from the beginning.

    Args:
        console: Where it is said what is not as it was: data, batches of an epoch, devices.
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self._states: list[dict[str, Any]] = []
        self._batches: int | None = None
        self._fingerprint: str | None = None

    @override
    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        own = _random_states(trainer.strategy.root_device)
        states = [own]
        if dist.is_initialized():
            states = [own for _ in range(trainer.world_size)]
            dist.all_gather_object(states, own)
        checkpoint[RANDOM_STATES] = states
        checkpoint[BATCHES] = int(trainer.num_training_batches)

    @override
    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        self._states = list(checkpoint.get(RANDOM_STATES, []))
        _expect_states(self._states)
        batches = checkpoint.get(BATCHES)
        self._batches = None if batches is None else operator.index(batches)
        self._fingerprint = checkpoint.get("bert_lightning", {}).get("data", {}).get("fingerprint")
        for callback in _early_stopping(trainer):
            # Lightning would bring back the patience of then, whatever is asked for now
            if state := checkpoint["callbacks"].get(callback.state_key):
                state["patience"] = callback.patience

    @override
    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # Lightning forgets that a run was ended early, and would train one more epoch
        if trainer.ckpt_path and any(_has_stopped(c) for c in _early_stopping(trainer)):
            trainer.should_stop = True

    @override
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not trainer.ckpt_path:
            return
        loop: Any = trainer.fit_loop
        done = loop.epoch_loop.batch_progress.current.processed
        is_counted = loop.epoch_progress.current.processed == loop.epoch_progress.current.ready
        # one that trainer.max_steps cut short is counted, too, and goes on if steps count again
        if is_counted and (not loop.restarting or done >= (self._batches or 0)):
            self._say_if_unscored(trainer)
            _begin_next_epoch(loop)
            done = 0
        loader: Any = trainer.train_dataloader
        sampler = loader.batch_sampler
        sampler.set_epoch(trainer.current_epoch)
        sampler.done = done if done < trainer.num_training_batches else 0
        self._say_if_other(trainer, done)
        self._say_of_data(trainer, sampler.done)
        if loader.num_workers and loop._data_fetcher is not None:
            # its workers were given batches before the checkpoint was read
            iter(loop._data_fetcher)
        if len(self._states) == trainer.world_size:
            _restore(self._states[trainer.global_rank], trainer.strategy.root_device)
        elif trainer.is_global_zero:
            self._say_of_processes(trainer.world_size)

    def _say_of_processes(self, now: int) -> None:
        """Say what differs where there is no random state for each process."""
        then = len(self._states)
        self.console.say(
            f"{'resume':<9} number of devices {then} before, {now} now: name strategy and devices"
            " again to train as before, as no checkpoint holds them"
            if then
            else f"{'resume':<9} the checkpoint holds no random states: dropout differs from that"
            " of a run that went on"
        )

    def _say_of_data(self, trainer: Trainer, done: int) -> None:
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        if not trainer.is_global_zero or self._fingerprint in (None, data.news.fingerprint):
            return
        skipped = f"; {done:,} batches of this epoch are skipped all the same" if done else ""
        self.console.say(
            f"{'resume':<9} the data are others than those of the checkpoint: its best score, which"
            f" a new one has to exceed, is of those{skipped}"
        )

    def _say_if_unscored(self, trainer: Trainer) -> None:
        """Say that a validation is missing: a user's own callback saved before it."""
        epoch_loop: Any = trainer.fit_loop.epoch_loop
        if trainer.is_global_zero and epoch_loop.restarted_on_train_batch_end:
            self.console.say(
                f"{'resume':<9} the checkpoint was saved after the last step of epoch"
                f" {trainer.current_epoch} and before its validation, which is left out"
            )

    def _say_if_other(self, trainer: Trainer, done: int) -> None:
        now, then = trainer.num_training_batches, self._batches or 0
        if trainer.is_global_zero and 0 < done < then != now:
            self.console.say(
                f"{'resume':<9} epoch {trainer.current_epoch + 1} was cut off after {done:,} of"
                f" {then:,} batches and has {now:,} now (data.batch_size, trainer.devices): some of"
                " its rows come twice or not at all"
            )


def _has_stopped(callback: EarlyStopping) -> bool:
    """Tell whether early stopping has ended the run, and still would."""
    if callback.stopping_reason == EarlyStoppingReason.PATIENCE_EXHAUSTED:
        return callback.wait_count >= callback.patience
    return callback.stopping_reason != EarlyStoppingReason.NOT_STOPPED


def _early_stopping(trainer: Trainer) -> list[EarlyStopping]:
    return [c for c in trainer.callbacks if isinstance(c, EarlyStopping)]  # type: ignore[attr-defined]


def _begin_next_epoch(loop: Any) -> None:
    """Leave the counts of an epoch that is over behind.

    Where ``trainer.max_steps`` is set, Lightning would go on with that epoch.
    """
    if loop.epoch_progress.current.completed < loop.epoch_progress.current.processed:
        loop.epoch_progress.increment_completed()
    loop.reset_restart_stage()
    loop.epoch_loop.reset_restart_stage()
    loop._restarting = loop.epoch_loop.restarting = False
    loop.epoch_loop.batch_progress.reset_on_run()


def _random_states(device: torch.device) -> dict[str, Any]:
    """Return all states that numbers may be drawn from, as a checkpoint may hold them."""
    _, keys, *rest = np.random.get_state(legacy=True)
    states = {
        "python": random.getstate(),
        "numpy": [torch.from_numpy(np.asarray(keys).astype(np.int64)), *rest],
        "torch": torch.get_rng_state(),
    }
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def _expect_states(states: list[dict[str, Any]]) -> None:
    """Let states of another form raise before training, as they would on restoring them."""
    cpu = torch.device("cpu")
    own = _random_states(cpu)
    try:
        for state in states:
            _restore(state, cpu)
    finally:
        _restore(own, cpu)


def _restore(states: dict[str, Any], device: torch.device) -> None:
    keys, position, *rest = states["numpy"]
    if not 0 <= position <= len(keys):  # NumPy would read whatever lies beyond them
        raise ValueError(f"a position of {position} in {len(keys)} random numbers")
    random.setstate(states["python"])
    np.random.set_state(("MT19937", keys.numpy().astype(np.uint32), position, *rest))
    torch.set_rng_state(states["torch"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)
