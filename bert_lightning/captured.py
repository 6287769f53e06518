"""A training step as CUDA graphs: at headline length the GPU would otherwise wait for the CPU.

A step of BERT-base launches some 1,500 kernels, which takes the host longer than the GPU needs to
run them; the faster the precision, the more of the time is waiting. So what the host launches is
recorded once and then replayed with one call:

* one graph for each shape of batch: inputs → loss → gradients, in the flat tensors of the
  optimizer; a batch that is not the first of its step adds to what is there;
* one graph for the update: unscale → clip → step → learning rate → loss scale → flight recorder.

A short batch is filled up with rows that count for nothing, and lengths are rounded up, finer the
shorter they are, so that few shapes come up. The first time that a shape comes up its kernels are
launched one by one, which compiles what is missing; the second time they are recorded, in
evaluation later. All numbers stay on the device. Dropout differs at every replay, since graphs go
on in the generator's sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from bert_lightning.amp import AmpSettings, StepRing
from bert_lightning.data.encoding import Batch
from bert_lightning.flat_adamw import FlatAdamW
from bert_lightning.functional_bert import (
    FunctionalBert,
    as_they_are,
    shape_of,
    weights_of,
)
from bert_lightning.graphs import UNMASKED_FROM, Inputs, Kind, Recording, Studio, kind_of

RowLosses = Callable[[Tensor, Tensor], Tensor]

EVALUATION_LAUNCHES = 32  # about what recording takes; most lengths of a small split come up less


class CapturedTraining:
    """Forward, backward and update of a fit, as graphs.

    Args:
        network: A BertForSequenceClassification on the device.
        optimizer: Over its parameters.
        dtype: Type of the products.
        row_losses: Logits and labels → loss of each row; 0 where the label is to be ignored.
        studio: Where graphs are recorded.
        full_batch: Rows of a full batch.
        filled: Rows that a shorter batch is filled up to.
        windows: Batches a step.
        clip_norm: Length to which gradients are clipped; None without.
        scaler: The loss scaler of 16-mixed, or None.
        settings: Its settings.
        ring: Where attempted steps are noted, or None.
        longest: Most pieces a row.
        compiled: Whether to compile.
    """

    def __init__(
        self,
        network: Any,
        optimizer: FlatAdamW,
        dtype: torch.dtype,
        row_losses: RowLosses,
        studio: Studio,
        *,
        full_batch: int,
        filled: int,
        windows: int,
        longest: int,
        clip_norm: float | None = None,
        scaler: Any = None,
        settings: AmpSettings | None = None,
        ring: StepRing | None = None,
        compiled: bool = True,
    ) -> None:
        self.optimizer = optimizer
        self.row_losses = row_losses
        self.studio = studio
        self.full = full_batch
        self.filled = filled
        self.windows = windows
        self.longest = longest
        self.clip_norm = clip_norm or None
        self.scaler = scaler
        self.settings = settings
        self.ring = ring
        self.forward = FunctionalBert(shape_of(network, dtype), compiled)
        self.has_dropout = network.training
        self._gradients: list[Tensor] = []
        self._leaves: list[Tensor] = []
        self.weights = weights_of(network, self._leaf)
        self.device = self.weights.embeddings[0].device
        self._cuda = [self.device] if self.device.type == "cuda" else []
        self._loss = torch.zeros((), device=self.device)
        self._rows = torch.zeros((), device=self.device)
        self._found_inf = torch.zeros((), device=self.device)
        self.batch_loss = torch.zeros((), device=self.device)
        self.loss = torch.zeros((), device=self.device)
        self.rate = torch.zeros((), device=self.device)
        self._shapes: dict[Kind, tuple[Inputs, Recording]] = {}
        self._update = Recording(self._step, self.studio)
        self._settings = self._seen_settings()
        optimizer.refresh()
        if scaler is not None:
            scaler.scale(self._loss)  # makes its tensors

    def _leaf(self, parameters: Sequence[nn.Parameter]) -> Any:
        """Return what autograd takes the gradient of; a constant where parameters are frozen."""
        if not any(parameter.requires_grad for parameter in parameters):
            return as_they_are([parameter.detach() for parameter in parameters])
        if not all(parameter.requires_grad for parameter in parameters):
            return tuple(self._leaf([parameter]) for parameter in parameters)
        leaf = self.optimizer.used(parameters).detach().requires_grad_()
        torch._dynamo.mark_static(leaf)
        self._leaves.append(leaf)
        self._gradients.append(self.optimizer.gradients_of(parameters))
        return leaf

    def summary(self) -> dict[str, Any]:
        """Return graphs, seconds to record them, and the rows and lengths that are replayed."""
        shapes = {kind[:2] for kind, (_, work) in self._shapes.items() if work.is_recorded}
        return {
            "graphs": self.studio.graphs,
            "seconds": round(self.studio.seconds, 2),
            "shapes": sorted(shapes),
        }

    def run(self, batch: Batch, is_first: bool) -> None:
        """Add the gradients of a batch to those of the step, or begin a step.

        ``batch_loss`` is then the sum over its rows, over the rows of a full batch.

        Args:
            batch: On the device.
            is_first: Whether a step begins.
        """
        if is_first:
            self.optimizer.refresh_if_changed()
        kind = kind_of(batch, self.filled, self.longest, is_first)
        if kind not in self._shapes:
            self._shapes[kind] = self._prepared(kind)
        inputs, work = self._shapes[kind]
        inputs.take(batch)
        work()

    def _prepared(self, kind: Kind) -> tuple[Inputs, Recording]:
        inputs = Inputs(kind.rows, kind.length, self.device)
        if not self._shapes and self.longest >= UNMASKED_FROM:
            # compile for batches with and without padding now, not in the midst of the run
            with torch.random.fork_rng(devices=self._cuda):
                for is_full in (True, False):
                    self._gradients_of(inputs, is_full)
        return inputs, Recording(lambda: self._add_gradients(inputs, kind), self.studio)

    def update(self) -> None:
        """Step the optimizer; ``loss`` is the mean over the rows of the step, ``rate`` its rate."""
        if not all(map(_is_same, self._seen_settings(), self._settings)):
            for group in self.optimizer.param_groups:  # a graph takes no number from the host
                group["lr"] = torch.as_tensor(group["lr"], device=self.device)
            self._settings = self._seen_settings()
            self._update = Recording(self._step, self.studio)
        was_recorded = self._update.is_recorded
        self._update()
        if self.ring is not None and self._update.is_recorded and was_recorded:
            self.ring.written += 1  # what is replayed runs no Python

    def _seen_settings(self) -> list[Any]:
        """Return what a graph of the update holds, which somebody may put something else for."""
        groups = self.optimizer.param_groups
        return [group[name] for group in groups for name in ("lr", "weight_decay", "betas", "eps")]

    def _gradients_of(self, inputs: Inputs, is_full: bool) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return the sum of the rows' losses, and scaled gradients."""
        with torch.autocast(self.device.type, enabled=False):
            logits = self.forward(
                inputs.ids, None if is_full else inputs.mask, self.weights, self.has_dropout
            )
            loss = self.row_losses(logits, inputs.labels).sum()
            scaled = loss / (self.full * self.windows)
            if self.scaler is not None:
                scaled = scaled * self.scaler._scale
            return loss.detach(), torch.autograd.grad(scaled, self._leaves)

    def _add_gradients(self, inputs: Inputs, kind: Kind) -> None:
        loss, gradients = self._gradients_of(inputs, kind.is_full)
        with torch.no_grad():
            torch.div(loss, self.full, out=self.batch_loss)
            if kind.is_first:
                self._loss.copy_(loss)
                self._rows.copy_(inputs.count)
                torch._foreach_copy_(self._gradients, gradients)
            else:
                self._loss += loss
                self._rows += inputs.count
                torch._foreach_add_(self._gradients, gradients)

    @torch.no_grad()
    def _step(self) -> None:
        """Unscale, clip, step, and set the scale of the next step."""
        torch.div(self._loss, self._rows, out=self.loss)
        self.rate.copy_(self.optimizer.param_groups[0]["lr"])
        factor = (self.full * self.windows) / self._rows
        scaler = self.scaler
        if scaler is not None:
            scale = scaler._scale
            used_scale = scale.clone()
            factor = factor / scale
        norm = self.optimizer.gradient_norm() * factor
        if scaler is not None:
            self._found_inf.copy_(~torch.isfinite(norm))
            self.optimizer.found_inf = self._found_inf  # type: ignore[attr-defined]
        if self.clip_norm is not None:
            factor = factor * (self.clip_norm / (norm + 1e-6)).clamp(max=1.0)
        self.optimizer.gradient_factor = factor
        self.optimizer.step()
        if scaler is None or self.settings is None or self.ring is None:
            return
        torch._amp_update_scale_(
            scale,
            scaler._growth_tracker,
            self._found_inf,
            scaler.get_growth_factor(),
            scaler.get_backoff_factor(),
            scaler.get_growth_interval(),
        )
        scale.clamp_(min=self.settings.min_scale)
        self.ring.write(loss_scale=used_scale, norm=norm, found_inf=self._found_inf, scale=scale)


def _is_same(one: Any, other: Any) -> bool:
    is_tensor = isinstance(one, Tensor) or isinstance(other, Tensor)
    return one is other if is_tensor else bool(one == other)


class CapturedForward:
    """Logits of a batch without gradients, as graphs of shapes that come up often.

    Nothing is compiled: that takes longer than evaluating some hundred thousand titles.

    Args:
        network: A BertForSequenceClassification on the device; its weights are read at each call,
            also those that somebody has put in place of others.
        dtype: Type of the products.
        longest: Most pieces a row.
        studio: Where graphs are recorded.
    """

    def __init__(self, network: Any, dtype: torch.dtype, longest: int, studio: Studio) -> None:
        self.forward = FunctionalBert(shape_of(network, dtype), compiled=False)
        self.longest = longest
        self.filled = 0
        self.weights = weights_of(network)
        self._parameters = list(network.parameters())
        self._places: list[int] = []
        self.device = self.weights.embeddings[0].device
        self.studio = studio
        self._shapes: dict[Kind, tuple[Inputs, Tensor, Recording]] = {}

    @torch.no_grad()
    def __call__(self, batch: Batch) -> Tensor:
        """Return logits, float32 of shape (B, C), of a batch on the device."""
        rows = len(batch["input_ids"])
        self.filled = max(rows, self.filled)
        kind = kind_of(batch, self.filled, self.longest)
        places = [parameter.data_ptr() for parameter in self._parameters]
        if places != self._places:  # graphs read where the weights were
            self._places = places
            self._shapes.clear()
        if kind not in self._shapes:
            self._shapes[kind] = self._prepared(kind)
        inputs, logits, work = self._shapes[kind]
        inputs.take(batch)
        work()
        return logits[:rows].clone()

    def _prepared(self, kind: Kind) -> tuple[Inputs, Tensor, Recording]:
        inputs = Inputs(kind.rows, kind.length, self.device)
        classes = self.weights.head[-1].shape[0]
        logits = torch.zeros(kind.rows, classes, device=self.device)

        def work() -> None:
            with torch.autocast(self.device.type, enabled=False):
                mask = None if kind.is_full else inputs.mask
                logits.copy_(self.forward(inputs.ids, mask, self.weights, training=False))

        return inputs, logits, Recording(work, self.studio, EVALUATION_LAUNCHES)
