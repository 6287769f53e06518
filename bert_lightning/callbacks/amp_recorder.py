"""Flight recorder of mixed precision: what the loss scaler did, and when to stop a run.

The precision plugin keeps the last steps on the device. They are read at the logging interval,
once, which is the only time that the host waits.
"""

from __future__ import annotations

import csv
from collections import deque
from pathlib import Path
from typing import Any

import torch.distributed as dist
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import FSDPStrategy
from typing_extensions import override

from bert_lightning.amp import Step, StepRing
from bert_lightning.checkpoint import CHECKPOINTS, LAST
from bert_lightning.console import Console
from bert_lightning.errors import TrainingError
from bert_lightning.nonfinite import blame

LAST_STEPS = "amp_last_steps.csv"
_KEPT_NUMBERS = 1000  # of skipped steps; all are counted
_KEPT_BATCHES = 64  # steps whose batches stay on the device, for at most a logging interval
_SHOWN = 10


class AmpRecorder(Callback):
    """Logs amp/loss_scale, amp/skipped_steps, train/gradient_norm and train/clipped_share.

    A step is counted when it is attempted, the first as 1, as Lightning's global_step does. The
    gradient norm is the one before clipping; the share of clipped steps is that since the last
    logging. Overflow is said once an event, which is a number of skipped steps in a row. A run
    whose loss scale reaches its floor, or that skips too many steps in a row, is stopped with the
    module and the rows that were not finite, and the last steps are written to amp_last_steps.csv.

    Args:
        folder: Folder of the run; None writes nothing.
        console: Where lines go.
    """

    def __init__(self, folder: Path | None, console: Console) -> None:
        self.folder = folder
        self.console = console
        self.steps = 0
        self.skipped = 0
        self.clipped = 0
        self.skipped_steps: list[int] = []
        self.loss_scale: float | None = None
        self._ring: StepRing | None = None
        self._read = 0
        self._attempt = 0  # number of the last step that was read
        self._event: list[int] = []  # skipped steps in a row, up to the last step
        self._last: deque[tuple[int, Step]] = deque(maxlen=256)
        self._window: list[Any] = []
        self._batches: deque[tuple[int, list[Any]]] = deque(maxlen=_KEPT_BATCHES)

    @override
    def state_dict(self) -> dict[str, Any]:
        names = ("steps", "skipped", "clipped", "skipped_steps", "loss_scale")
        return {name: getattr(self, name) for name in names}

    @override
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if state_dict["steps"] > self.steps:  # the test after a fit brings back an older state
            self.__dict__.update(state_dict)

    def summary(self) -> dict[str, Any]:
        """Return what the report says."""
        return {
            "steps": self.steps,
            "skipped": self.skipped,
            "skipped_steps": self.skipped_steps,
            "clipped": self.clipped,
            "loss_scale": self.loss_scale,
        }

    @override
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        plugin: Any = trainer.precision_plugin
        ring: StepRing = plugin.ring
        self._ring = ring
        self._read = ring.written
        self._attempt = trainer.global_step
        self._event = []

    @override
    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if batch_idx % trainer.accumulate_grad_batches == 0:
            self._window = []
        self._window.append(batch)

    @override
    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        assert self._ring is not None
        unread = self._ring.written - self._read
        attempt = self._attempt + unread
        if not unread or (self._batches and self._batches[-1][0] == attempt):
            return  # inside a window
        self._batches.append((attempt, self._window))
        every: int = trainer.log_every_n_steps  # type: ignore[attr-defined]
        if trainer.global_step % every == 0 or unread >= self._ring.capacity:
            self._settle(trainer, pl_module)

    @override
    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._settle(trainer, pl_module)  # before the checkpoint of the epoch is written

    @override
    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._say_event()

    @override
    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        if isinstance(exception, TrainingError):
            self._take_in(trainer)
            self._write_last_steps(trainer)

    def _take_in(self, trainer: Trainer) -> list[Step]:
        """Read the steps since the last time and count them."""
        if self._ring is None:
            return []
        unread = self._ring.written - self._read
        steps = self._ring.read(unread)
        self._attempt += unread - len(steps)
        self._read = self._ring.written
        limit = _norm_limit(trainer)
        for step in steps:
            self._attempt += 1
            self._last.append((self._attempt, step))
            self.steps += 1
            self.loss_scale = step.next_scale
            if step.is_skipped:
                self.skipped += 1
                self._event.append(self._attempt)
                if len(self.skipped_steps) < _KEPT_NUMBERS:
                    self.skipped_steps.append(self._attempt)
            else:
                self._say_event()
                self.clipped += _is_clipped(step, limit)
        return steps

    def _settle(self, trainer: Trainer, pl_module: LightningModule) -> None:
        steps = self._take_in(trainer)
        if not steps:
            return
        self._log(steps, trainer, pl_module)
        self._stop_if_hopeless(trainer, pl_module)
        self._batches.clear()

    def _log(self, steps: list[Step], trainer: Trainer, pl_module: LightningModule) -> None:
        taken = [step for step in steps if not step.is_skipped]
        clipped = sum(_is_clipped(step, _norm_limit(trainer)) for step in taken)
        values = {
            "amp/loss_scale": steps[-1].next_scale,
            "amp/skipped_steps": float(self.skipped),
            "train/clipped_share": clipped / max(1, len(taken)),
        }
        if taken:
            values["train/gradient_norm"] = taken[-1].gradient_norm
        pl_module.log_dict(values)

    def _say_event(self) -> None:
        if not self._event:
            return
        shown = ", ".join(f"{step:,}" for step in self._event[:_SHOWN])
        more = ", …" if len(self._event) > _SHOWN else ""
        self.console.say(
            f"Gradient overflow detected: {_steps(len(self._event))} skipped ({shown}{more}),"
            f" {self.skipped:,} so far; loss scale {self.loss_scale:g}"
        )
        self._event = []

    def _stop_if_hopeless(self, trainer: Trainer, pl_module: LightningModule) -> None:
        plugin: Any = trainer.precision_plugin
        settings = plugin.settings
        in_a_row = _longest_run([step for _, step in self._last])
        assert self.loss_scale is not None
        if self.loss_scale <= settings.min_scale:
            expected = f"amp.min_scale: expected a loss scale above {settings.min_scale:g}"
            found = f"{self.loss_scale:g} after step {self._attempt:,}"
        elif in_a_row > settings.max_consecutive_skips:
            expected = (
                f"amp.max_consecutive_skips: expected at most {settings.max_consecutive_skips}"
                " skipped steps in a row"
            )
            found = f"{in_a_row} up to step {self._attempt:,}"
        else:
            return
        self._say_event()
        where, has_rows = self._culprit(trainer, pl_module)
        raise TrainingError(f"{expected} – found {found}\n{where}\n{self._way_on(has_rows)}")

    def _way_on(self, has_rows: bool) -> str:
        rows = ", without these rows" if has_rows else ""
        ways = f"{rows}, or with --trainer.precision bf16-mixed"
        if self.folder:
            ways += f"; {self.folder / LAST_STEPS} holds the last steps"
        if self.folder is None or not (self.folder / CHECKPOINTS / LAST).is_file():
            return (
                "no checkpoint was written yet: begin again with a lower --amp.init_scale or"
                f" --model.learning_rate{ways}"
            )
        return (  # where the loss scale goes on, too, whatever amp.init_scale
            "weights and last checkpoint are those before: go on with --ckpt_path"
            f" {self.folder} and a lower --model.learning_rate{ways}"
        )

    def _culprit(self, trainer: Trainer, pl_module: LightningModule) -> tuple[str, bool]:
        """Run skipped batches once more, newest first.

        Returns:
            What was not finite, and whether single rows are to blame.
        """
        if isinstance(trainer.strategy, FSDPStrategy):  # its processes run in step or not at all
            return "where it began is not looked for under FSDP: take one device to find out", False
        scales = {number: step.loss_scale for number, step in self._last if step.is_skipped}
        skipped = [
            (number, batch) for number, w in self._batches for batch in w if number in scales
        ]
        found = None
        for number, batch in reversed(skipped[-3:]):
            found = self._look_again(trainer, pl_module, number, batch, scales[number])
            if found:
                break
        if trainer.world_size > 1:
            every: list[Any] = [None] * trainer.world_size
            dist.all_gather_object(every, found)
            found = next((each for each in every if each), None)
        numbers = ", ".join(f"{number:,}" for number in list(scales)[-_SHOWN:])
        return found or (
            f"not finite at steps {numbers}, but finite when their batches were run once more:"
            " overflow in a sum over rows or processes, or chance of dropout",
            False,
        )

    def _look_again(
        self, trainer: Trainer, pl_module: LightningModule, number: int, batch: Any, scale: float
    ) -> tuple[str, bool] | None:
        context = trainer.precision_plugin.train_step_context
        module: Any = pl_module
        return blame(module, module.network, context, number, batch, scale)

    def _write_last_steps(self, trainer: Trainer) -> None:
        if self.folder is None or not trainer.is_global_zero or not self._last:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / LAST_STEPS).open("w", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(["step", *Step._fields])
            writer.writerows([number, *step] for number, step in self._last)


def _norm_limit(trainer: Trainer) -> float | None:
    """Return the length to which gradients are clipped; None without, or where values are."""
    return None if trainer.gradient_clip_algorithm == "value" else trainer.gradient_clip_val


def _is_clipped(step: Step, limit: float | None) -> bool:
    return bool(limit) and step.gradient_norm > (limit or 0)


def _longest_run(steps: list[Step]) -> int:
    longest = run = 0
    for step in steps:
        run = run + 1 if step.is_skipped else 0
        longest = max(longest, run)
    return longest


def _steps(count: int) -> str:
    return f"{count:,} step{'' if count == 1 else 's'}"
