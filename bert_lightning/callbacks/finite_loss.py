"""Training without a loss scale: the step, the module and the rows that made the loss no number."""

from __future__ import annotations

import copy
from collections import deque
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import FSDPStrategy
from typing_extensions import override

from bert_lightning.checkpoint import CHECKPOINTS, LAST, damage, read_checkpoint
from bert_lightning.errors import TrainingError
from bert_lightning.nonfinite import blame, shown_rows

_KEPT_BATCHES = 64  # as the recorder of mixed precision; they stay where they are


class FiniteLoss(Callback):
    """Stops a run whose loss is no longer a number, before such a state is saved.

    Losses are looked at where they are logged and before a checkpoint is written, so that the
    device is not waited for at each step. By then the weights are spoilt: where it began is looked
    for with those of the last checkpoint.

    Args:
        folder: Folder of the run; None where nothing is kept.
    """

    def __init__(self, folder: Path | None) -> None:
        self.last = folder / CHECKPOINTS / LAST if folder else None
        self._steps: deque[tuple[int, torch.Tensor, Any]] = deque(maxlen=_KEPT_BATCHES)

    @override
    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        done = batch_idx + 1
        step = trainer.global_step + bool(done % trainer.accumulate_grad_batches)
        if outputs:  # else a subclass has left the batch out
            self._steps.append((step, outputs["loss"], batch))
        is_logged = done % trainer.log_every_n_steps == 0  # type: ignore[attr-defined]
        if is_logged or trainer.is_last_batch or len(self._steps) == _KEPT_BATCHES:
            self._look(trainer, pl_module)

    @override
    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        self._look(trainer, pl_module)

    def _look(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not self._steps:
            return
        is_bad = ~torch.stack([loss for _, loss, _ in self._steps]).isfinite()
        anywhere = is_bad.any().float()
        if trainer.world_size > 1:
            dist.all_reduce(anywhere, dist.ReduceOp.MAX)
        if anywhere:
            self._stop(trainer, pl_module, is_bad.tolist())
        self._steps.clear()

    def _stop(self, trainer: Trainer, pl_module: LightningModule, is_bad: list[bool]) -> None:
        bad = [step for step, its in zip(self._steps, is_bad, strict=True) if its][:1]
        told = [(step, loss.item(), *self._where(trainer, pl_module, step, batch))
                for step, loss, batch in bad]  # fmt: skip
        every = [told]
        if trainer.world_size > 1:
            every = [told for _ in range(trainer.world_size)]
            dist.all_gather_object(every, told)
        step, loss, where, has_rows = min(first for one in every for first in one)
        rows = ", without these rows" if has_rows else ""
        lower = f"a lower --model.learning_rate or longer --model.warmup_ratio{rows}"
        way = f"no checkpoint was written yet: begin again with {lower}"
        if self.last and self.last.exists():
            run = self.last.parent.parent
            way = f"the last checkpoint is that before: go on with --ckpt_path {run} and {lower}"
        raise TrainingError(
            f"train/loss: expected a number – found {loss} at step {step:,}\n{where}\n{way}"
        )

    def _where(
        self, trainer: Trainer, pl_module: LightningModule, step: int, batch: Any
    ) -> tuple[str, bool]:
        batch_rows = f"its batch has rows {shown_rows(batch['rows'].tolist())} of train"
        if isinstance(trainer.strategy, FSDPStrategy):  # its processes run in step or not at all
            return batch_rows, False
        if not (self.last and self.last.is_file()) or damage(self.last):
            return f"{batch_rows}; no earlier weights are there to look where it began", False
        state = read_checkpoint(self.last)
        network: Any = copy.deepcopy(pl_module.network)
        prefix = "network."
        weights = {
            name.removeprefix(prefix): value
            for name, value in state["state_dict"].items()
            if name.startswith(prefix)
        }
        network.load_state_dict(weights)
        context = trainer.precision_plugin.train_step_context
        found = blame(pl_module, network, context, step, batch, 1.0)
        return found or (
            f"{batch_rows}, and gives numbers with the weights of the last checkpoint, of step"
            f" {state['global_step']:,}: the steps since then made the weights too large",
            False,
        )
