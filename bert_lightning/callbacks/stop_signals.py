"""SIGTERM, SIGINT, SIGHUP, SIGUSR1 → a checkpoint within one step, then the status of that signal.

Lightning's own handlers end with status 0, and those of two processes can wait for one another:
they talk to the other processes in the midst of whatever these do. Here a handler only takes a
note. The first process decides; it tells the others through the store that they found each other
by, which costs no wait for a device.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch.distributed as dist
from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint
from typing_extensions import override

from bert_lightning.checkpoint import going_on, way_on
from bert_lightning.console import Console, leave_terminal
from bert_lightning.runs import remember_job

_ENDING = ("SIGTERM", "SIGINT", "SIGHUP")
_SAVING = ("SIGUSR1",)
_KEY = "bert_lightning/stop"


class StopSignals(Checkpoint):
    """Ends a run that is told to, after saving where it stands.

    SIGTERM, SIGINT and SIGHUP (a terminal that is closed): a checkpoint after the step that is
    being computed, or after the validation that is; then exit status 143, 130 or 129. A second one
    ends at once. SIGUSR1: a checkpoint, and the run goes on; under SLURM with requeueing the job is
    put back into the queue and ends with 0.

    It is a `Checkpoint` so that Lightning calls it after the one that saves at validation ends.

    Args:
        save: Writes the newest state; called on all processes. None where nothing is kept.
        folder: Of the run.
        console: Where lines go.
    """

    def __init__(
        self, save: Callable[[Trainer], None] | None, folder: str, console: Console
    ) -> None:
        self.save = save
        self.folder = folder
        self.console = console
        self._signal = 0
        self._batches = 0
        self._due: int | None = None  # batch after which all processes act
        self._requeues = False

    @override
    def on_sanity_check_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._listen(trainer, self._note)

    @override
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._listen(trainer, self._note)

    @override
    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._listen_outside_of_fit(trainer)

    @override
    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._listen_outside_of_fit(trainer)

    @override
    def on_predict_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._listen_outside_of_fit(trainer)

    def _listen_outside_of_fit(self, trainer: Trainer) -> None:
        if trainer.state.fn != "fit":
            self._listen(trainer, self._leave_at_once)

    def _listen(self, trainer: Trainer, handler: Callable[[int, FrameType | None], None]) -> None:
        self._is_first = trainer.is_global_zero
        self._processes = trainer.world_size
        environment = trainer._accelerator_connector.cluster_environment
        saving = list(_SAVING)
        if isinstance(environment, SLURMEnvironment) and environment.auto_requeue:
            self._requeues = True
            saving = [signal.Signals(environment.requeue_signal or signal.SIGUSR1).name]
        for name in (*_ENDING, *saving):
            number = getattr(signal, name, None)  # Windows has no SIGUSR1
            if number and signal.getsignal(number) != signal.SIG_IGN:  # as nohup has it
                with contextlib.suppress(ValueError):  # not the main thread
                    signal.signal(number, handler)

    def _note(self, number: int, _: FrameType | None) -> None:
        name = signal.Signals(number).name
        ends = name in _ENDING
        if name == "SIGHUP":
            leave_terminal()
        if ends and self._signal == number:
            self._leave_at_once(number, _)
        if ends or not self._signal:
            self._signal = number

    def _leave_at_once(self, number: int, _: FrameType | None) -> None:
        name = signal.Signals(number).name
        if name not in _ENDING:
            return
        if name == "SIGHUP":
            leave_terminal()
        if self._is_first:  # not by the console, which may be in the midst of a line
            way = f"; {way_on(Path(self.folder), self._processes)}" if self.save else ""
            os.write(2, f"\n{'stopped':<9} by {name} at once{way}\n".encode())
        raise SystemExit(128 + number)

    @override
    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._batches += 1
        if not self._is_due(trainer):
            return
        loop: Any = trainer.fit_loop
        if trainer.is_last_batch or loop.epoch_loop._should_check_val_fx(loop._data_fetcher):
            return  # a validation or the end of the epoch comes next, and saves
        if (batch_idx + 1) % trainer.accumulate_grad_batches:
            return  # half a step cannot be saved
        if self.save:
            self.save(trainer)
        self._act(trainer)

    @override
    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn == "fit" and not (trainer.sanity_checking or trainer.is_last_batch):
            self._act_if_due(trainer)

    @override
    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._act_if_due(trainer)

    @override
    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # all is saved: one that came since then, or that no batch was left to agree on, ends it now
        self._signal = trainer.strategy.broadcast(self._signal)
        if self._signal:
            self._act(trainer)

    def _act_if_due(self, trainer: Trainer) -> None:
        if self._is_due(trainer):
            self._act(trainer)

    def _is_due(self, trainer: Trainer) -> bool:
        """Tell whether all processes save now: the same answer on each after the same batch."""
        if trainer.world_size == 1:
            return bool(self._signal)
        # no process begins a batch before the first has ended the one before: Lightning broadcasts
        # at each beginning, so that what the first says after a batch is known after the next
        store = dist.distributed_c10d._get_default_store()
        if self._is_first and self._signal and self._due is None:
            self._due = self._batches + 1
            store.set(_KEY, f"{self._due} {self._signal}")
        elif not self._is_first and self._due is None and store.check([_KEY]):
            due, number = store.get(_KEY).decode().split()
            self._due, self._signal = int(due), int(number)
        return self._due is not None and self._batches >= self._due

    def _act(self, trainer: Trainer) -> None:
        """End, or go on, now that all is saved."""
        number, self._signal = self._signal, 0
        if self._due is not None:
            trainer.strategy.barrier()
            if self._is_first:
                dist.distributed_c10d._get_default_store().delete_key(_KEY)
            trainer.strategy.barrier()
            self._due = None
        name = signal.Signals(number).name
        place = f"after step {trainer.global_step:,}"
        kept = f"saved in {self.folder}" if self.save else "nothing is kept"
        again = f"; {going_on(Path(self.folder), self._processes)}" if self.save else ""
        if name in _ENDING:
            self._say(f"{'stopped':<9} by {name} {place}, {kept}{again}")
            raise SystemExit(128 + number if self._is_first else 0)
        if not self._requeues:
            self._say(f"{'saved':<9} on {name} {place}, in {self.folder}; the run goes on")
            return
        if self._is_first:
            self._say(f"{'requeued':<9} on {name} {place}, {kept}")
            _requeue(self.folder)
        raise SystemExit(0)

    def _say(self, line: str) -> None:
        if self._is_first:
            self.console.say(line)


def _requeue(folder: str) -> None:
    """Put the job back into the queue; started again, it goes on from the run's last checkpoint."""
    job = os.environ["SLURM_JOB_ID"]
    array, task = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    remember_job(folder, job)
    subprocess.run(["scontrol", "requeue", f"{array}_{task}" if array else job], check=True)
