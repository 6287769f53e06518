"""Progress for a person: Rich bars on a terminal, plain lines in a log file."""

from __future__ import annotations

import time
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ProgressBar, RichProgressBar
from typing_extensions import override

from bert_lightning.console import Console

SECONDS_BETWEEN_LINES = 10.0


def say_scores(trainer: Trainer, console: Console) -> None:
    """Write the scores of the validation that has just ended inside a fit."""
    if trainer.sanity_checking or trainer.state.fn != "fit":
        return
    scores = [
        f"{name} {float(value):.4f}"
        for name, value in trainer.callback_metrics.items()
        if name.startswith("val/")
    ]
    epoch = f"epoch {trainer.current_epoch + 1}/{trainer.max_epochs}"
    console.say(" · ".join([epoch, *scores]))


def progress_bar(console: Console, refresh_rate: int) -> ProgressBar:
    """Return the progress display that fits the stream.

    Args:
        console: Where the lines go.
        refresh_rate: Steps between two updates of a bar.
    """
    if not console.is_terminal:
        return PlainProgress(console)
    return RichProgress(console, refresh_rate)


class RichProgress(RichProgressBar):
    """Lightning's Rich bar, with the loss of the last logging step instead of one a batch.

    Reading the loss of a step makes the host wait for the device, so it is read when it was logged.

    Args:
        console: Where lines between the bars go.
        refresh_rate: Steps between two updates of a bar.
    """

    def __init__(self, console: Console, refresh_rate: int) -> None:
        super().__init__(refresh_rate, console_kwargs={"stderr": console.to_stderr})
        self.console = console

    @override
    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        super().on_validation_end(trainer, pl_module)
        say_scores(trainer, self.console)

    @override
    def get_metrics(self, trainer: Trainer, pl_module: LightningModule) -> dict[str, Any]:
        shown: dict[str, Any] = super().get_metrics(trainer, pl_module)
        shown.pop("v_num", None)
        every = trainer.log_every_n_steps  # type: ignore[attr-defined]
        if trainer.global_step % every == 0 or not hasattr(self, "_loss"):
            loss = trainer.logged_metrics.get("train/loss")
            self._loss = {} if loss is None else {"train/loss": float(loss)}
        return {**shown, **self._loss}


class PlainProgress(ProgressBar):
    """One line every ten seconds, one an evaluation; nothing that overwrites itself.

    Args:
        console: Where the lines go.
    """

    def __init__(self, console: Console) -> None:
        super().__init__()
        self.console = console
        self._shown_at = 0.0
        self._epoch_started = 0.0
        self._first_batch: int | None = None

    @override
    def disable(self) -> None:
        pass  # other processes are silent already, since the console is

    @override
    def on_train_epoch_start(self, trainer: Trainer, *_: Any) -> None:
        self._first_batch = None

    @override
    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if self._first_batch is None:  # a resumed epoch begins in its middle
            self._first_batch = batch_idx
            self._epoch_started = self._shown_at = time.monotonic()

    @override
    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        now = time.monotonic()
        done, total = batch_idx + 1, self.total_train_batches
        if now - self._shown_at < SECONDS_BETWEEN_LINES or done % trainer.log_every_n_steps:  # type: ignore[attr-defined]
            return
        self._shown_at = now
        loss = trainer.logged_metrics.get("train/loss")
        here = done - (self._first_batch or 0)
        left = (now - self._epoch_started) / here * (total - done)
        self.console.say(
            f"epoch {trainer.current_epoch + 1}/{trainer.max_epochs} · batch {done:,}/{total:,}"
            + (f" · train/loss {float(loss):.4f}" if loss is not None else "")
            + f" · {left:.0f} s of the epoch left"
        )

    @override
    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        say_scores(trainer, self.console)

    @override
    def on_predict_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        now = time.monotonic()
        if now - self._shown_at >= SECONDS_BETWEEN_LINES:
            self._shown_at = now
            total = trainer.num_predict_batches[0]
            self.console.say(f"batch {batch_idx + 1:,}/{total:,}")
