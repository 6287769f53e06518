"""What a user should know of the data before a run spends hours on it, in a few lines."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from typing_extensions import override

from bert_lightning.console import Console


class DataSummary(Callback):
    """Says how many titles leak from test into train, how many are cut, padded, unknown.

    Args:
        console: Where lines go.
    """

    def __init__(self, console: Console) -> None:
        self.console = console

    @override
    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.is_global_zero:
            data: Any = trainer.datamodule  # type: ignore[attr-defined]
            for line in data.summary():
                self.console.say(f"data      {line}")
