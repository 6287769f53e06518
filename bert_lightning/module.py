"""Batch → logits → loss → metric: the LightningModule."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
import torch.distributed as dist
from lightning.pytorch import LightningModule
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor
from torch.nn.functional import cross_entropy

from bert_lightning.backbone import build_network, resolve_backbone, tokenizer_files
from bert_lightning.captured import CapturedForward, CapturedTraining
from bert_lightning.checkpoint import FORMAT_VERSION
from bert_lightning.data.encoding import IGNORED_LABEL, Batch
from bert_lightning.errors import CheckpointError, ConfigError, TrainingError
from bert_lightning.execution import Asked, Execution, choose_execution
from bert_lightning.flat_adamw import FlatAdamW
from bert_lightning.functional_bert import (
    FunctionalBert,
    product_parameters,
    shape_of,
    weights_of,
)
from bert_lightning.graphs import Studio
from bert_lightning.hyperparameters import check_ranges, check_training_options
from bert_lightning.metrics import SCORES, EvaluationMetrics
from bert_lightning.optim import (
    Schedule,
    UpdateSchedule,
    build_optimizer,
    course,
    freeze_layers,
    parameter_groups,
)
from bert_lightning.planning import whole_run

_WRITTEN = "take a checkpoint that this program wrote"


class BertClassifier(LightningModule):
    """A BERT with a classification head.

    Args:
        pretrained: ``auto`` (bert-base-chinese on a machine with a GPU, else the built-in mini
            BERT), ``builtin`` (the mini BERT), a folder in transformers' form, a hub id, or a
            checkpoint of this project.
        class_names: Names of the classes in order; taken from the data, never typed.
        learning_rate: Peak rate; ``auto`` is 2e-5 for pretrained weights, and what the built-in
            mini BERT needs to learn from random weights.
        weight_decay: Decay of weight matrices; biases and LayerNorm weights are never decayed.
        warmup_ratio: Share of all optimizer steps over which the rate rises.
        dropout: Dropout of hidden states, attention and classifier; null keeps the model's own.
        schedule: How the rate goes on after the warm-up: ``linear`` or ``cosine`` to 0, or
            ``constant``.
        layer_decay: Rate of a layer over the rate of the layer above it; 1 is one rate for all.
        frozen_layers: Number of encoder layers, from the lowest, that are not trained, with the
            embeddings below them; 0 trains all.
        label_smoothing: Share of a label that is spread over all classes in training.
        class_weights: What a row of each class counts in the training loss; set by
            data.class_weights. The loss is still divided by the number of rows.
        gradient_checkpointing: Compute each layer again in the backward pass instead of keeping its
            values: less memory, more time.
        fused_optimizer: The whole update in one kernel; null takes it on CUDA and on a CPU.
        execution: How work gets to the GPU: ``eager`` launches each kernel, ``compiled`` makes
            fewer and larger ones, ``captured`` also replays a whole training step as CUDA graphs;
            ``auto`` takes the fastest that is right for device, strategy and callbacks.
    """

    def __init__(
        self,
        pretrained: str = "auto",
        class_names: list[str] | None = None,
        learning_rate: float | Literal["auto"] = "auto",
        weight_decay: float = 0.01,
        warmup_ratio: float = 0.1,
        dropout: float | None = None,
        schedule: Schedule = "linear",
        layer_decay: float = 1.0,
        frozen_layers: int = 0,
        label_smoothing: float = 0.0,
        class_weights: list[float] | None = None,
        gradient_checkpointing: bool = False,
        fused_optimizer: bool | None = None,
        execution: Asked = "auto",
    ) -> None:
        super().__init__()
        check_ranges(learning_rate, weight_decay, warmup_ratio, dropout)
        check_training_options(layer_decay, label_smoothing, class_weights, class_names)
        if not class_names:
            raise ConfigError(
                "model.class_names: expected the names of the data's classes – found none"
            )
        self.class_names = class_names
        self.backbone = resolve_backbone(pretrained)
        self.learning_rate = (
            self.backbone.learning_rate if learning_rate == "auto" else float(learning_rate)
        )
        self.weight_decay = weight_decay
        self.warmup_ratio = warmup_ratio
        self.schedule: Schedule = schedule
        self.layer_decay = layer_decay
        self.label_smoothing = label_smoothing
        self.class_weights = class_weights
        self.fused_optimizer = fused_optimizer
        self.network, self.backbone_note = build_network(self.backbone, class_names, dropout)
        freeze_layers(self.network, frozen_layers)
        if gradient_checkpointing:
            network: Any = self.network  # transformers renames it from 5.24 on
            network.config.use_cache = False  # or transformers says that it sets this itself
            old_name = network.gradient_checkpointing_enable
            getattr(network, "activation_checkpointing_enable", old_name)({"use_reentrant": False})
            network.disable_input_require_grads()  # a hook that the other kind alone needs
        self._tokenizer_files = tokenizer_files(self.backbone.tokenizer)
        self.metrics = EvaluationMetrics(len(class_names))
        self.results: dict[str, dict[str, Any]] = {}
        self.execution = execution
        self.chosen = Execution("eager")
        self._studio: Studio | None = None
        self._training: CapturedTraining | None = None
        self._evaluation: CapturedForward | None = None
        self._captured: dict[str, Any] | None = None  # summary of the training that has ended
        self._compiled: FunctionalBert | None = None
        self._logged: dict[str, Any] = {}
        self._window: list[tuple[Tensor, int]] = []  # loss and rows of each batch of the step
        self._full_batch: int | None = None
        self._weights: Tensor | None = None

    @property
    def tokenizer(self) -> Any:
        """The tokenizer that belongs to the weights."""
        return self.backbone.tokenizer

    @property
    def max_positions(self) -> int:
        """Longest input, in pieces, that the position embeddings allow."""
        return int(self.backbone.config.max_position_embeddings)

    @property
    def replaced_methods(self) -> list[str]:
        """Methods that a subclass has replaced, of those that a captured step does not call."""
        names = ("forward", "row_losses", "training_step", "on_before_optimizer_step")
        return [n for n in names if getattr(type(self), n) is not getattr(BertClassifier, n)]

    def setup(self, stage: str) -> None:
        """Choose how work gets to the device."""
        self.chosen = choose_execution(self.execution, self.trainer, self)
        # a run that was broken off tears nothing down
        self._training = self._evaluation = self._studio = self._compiled = None
        if self.chosen.name == "captured":
            self._studio = Studio(self.trainer.strategy.root_device)
        elif self.chosen.name == "compiled":
            shape = shape_of(self.network, self.chosen.dtype)
            self._compiled = FunctionalBert(shape, self.chosen.compiles)

    def teardown(self, stage: str) -> None:
        """Give back what graphs hold on the device."""
        if self._training is not None:
            self._captured = self._training.summary()
            self._training.optimizer.release()
        self._training = self._evaluation = self._studio = self._compiled = None

    def execution_summary(self) -> dict[str, Any]:
        """Return what the report says of the way that work got to the device."""
        captured = self._training.summary() if self._training else self._captured
        return {
            "chosen": self.chosen.line,
            "compiled_parts": torch._dynamo.utils.counters["stats"]["unique_graphs"],
            "captured": captured,
        }

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return logits, shape (B, C), for int64 ids and mask of shape (B, T)."""
        if self._compiled is None:
            logits: Tensor = self.network(input_ids=input_ids, attention_mask=attention_mask).logits
            return logits
        with torch.autocast(input_ids.device.type, enabled=False):
            return self._compiled(
                input_ids, attention_mask, weights_of(self.network), self.network.training
            )

    def on_train_start(self) -> None:
        """Let the learning rate and decay in force be the configured ones, also after a resume.

        A short epoch is logged at least once.
        """
        windows = -(-int(self.trainer.num_training_batches) // self.trainer.accumulate_grad_batches)
        interval: int = self.trainer.log_every_n_steps  # type: ignore[attr-defined]
        self.trainer.log_every_n_steps = max(1, min(interval, windows))  # type: ignore[attr-defined]
        if self.trainer.ckpt_path:  # its steps that are done may not be those of epochs now
            total = whole_run(self.trainer).total
            factor = course(self.schedule, self.warmup_ratio, total)
            self.update_schedule.follow(factor, total)
        self.update_schedule.take_over()
        self._full_batch = getattr(self.trainer.datamodule, "batch_size", None)  # type: ignore[attr-defined]
        weights = self.class_weights
        self._weights = None if weights is None else torch.tensor(weights, device=self.device)

    @property
    def update_schedule(self) -> UpdateSchedule:
        """Learning rates and the number of real updates."""
        schedule: Any = self.lr_schedulers()
        assert isinstance(schedule, UpdateSchedule)
        return schedule

    def row_losses(self, batch: Batch) -> Tensor:
        """Return what each row adds to the training loss, float32 of shape (B,)."""
        return self.losses(self(batch["input_ids"], batch["attention_mask"]), batch["labels"])

    def losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return what each row adds to the training loss, float32 of shape (B,)."""
        return cross_entropy(
            logits.float(),
            labels,
            weight=self._weights,
            reduction="none",
            label_smoothing=self.label_smoothing,
            ignore_index=IGNORED_LABEL,
        )

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Return the sum of the rows' losses over the rows of a full batch.

        A short batch thus counts for less, and each row the same, whatever the rows of the step.
        """
        rows = len(batch["labels"])
        is_first = batch_idx % self.trainer.accumulate_grad_batches == 0
        full = self._full_batch = self._full_batch or rows
        if self.chosen.name == "captured":
            self._training = self._training or self._capture(full)
            self._training.run(batch, is_first)
            return self._training.batch_loss
        loss = self.row_losses(batch).mean()
        if is_first:
            self._window = []
        self._window.append((loss.detach(), rows))
        return loss if rows == full else loss * (rows / full)

    def _capture(self, full_batch: int) -> CapturedTraining:
        """Return what runs a step as graphs; it does the work of the hooks below, too."""
        assert self._studio is not None
        trainer: Any = self.trainer
        optimizer: Any = trainer.optimizers[0]
        plugin, by_value = trainer.precision_plugin, trainer.gradient_clip_algorithm == "value"
        optimizer.clip_value = (trainer.gradient_clip_val or None) if by_value else None
        varied = getattr(trainer.datamodule, "tokens_per_batch", None) is not None
        return CapturedTraining(
            self.network,
            optimizer,
            self.chosen.dtype,
            self.losses,
            self._studio,
            full_batch=full_batch,
            filled=1 if varied else full_batch,
            windows=trainer.accumulate_grad_batches,
            longest=getattr(trainer.datamodule, "longest_input", self.max_positions),
            clip_norm=None if by_value else trainer.gradient_clip_val,
            scaler=getattr(plugin, "scaler", None),
            settings=getattr(plugin, "settings", None),
            ring=getattr(plugin, "ring", None),
            compiled=self.chosen.compiles,
        )

    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        """Compute gradients, unless they were captured with the forward pass."""
        if self._training is None:
            super().backward(loss, *args, **kwargs)

    def optimizer_zero_grad(self, epoch: int, batch_idx: int, optimizer: Any) -> None:
        """Drop gradients; captured ones are overwritten."""
        if self._training is None:
            super().optimizer_zero_grad(epoch, batch_idx, optimizer)

    def optimizer_step(
        self, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Any = None
    ) -> None:
        """Step the optimizer, through the precision plugin or by the captured update."""
        if self.chosen.name != "captured":
            super().optimizer_step(epoch, batch_idx, optimizer, optimizer_closure)
            return
        optimizer_closure()
        assert self._training is not None
        self._training.update()
        self._logged = {
            "train/loss": self._training.loss,
            "train/learning_rate": self._training.rate,
        }

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Divide the gradient by the rows that are in it; keep loss and rate of the step to log.

        Lightning has divided by the batches of a full step, and DDP by the processes. Where a step
        has fewer rows, or processes have unequal ones, that is too much.
        """
        sums = [(loss * rows, rows) for loss, rows in self._window]
        rows = sum(rows for _, rows in sums)
        full = (self._full_batch or 1) * self.trainer.accumulate_grad_batches
        factor: float | Tensor = full / rows
        loss = self._window[0][0]
        if len(sums) > 1:
            loss = torch.stack([total for total, _ in sums]).sum() / rows
        if self.trainer.world_size > 1:
            totals = torch.stack([loss * rows, torch.full_like(loss, rows)])
            dist.all_reduce(totals)
            loss, factor = totals[0] / totals[1], full * self.trainer.world_size / totals[1]
        if isinstance(factor, Tensor) or factor != 1:
            gradients = [p.grad for g in optimizer.param_groups for p in g["params"]]
            torch._foreach_mul_([g for g in gradients if g is not None], factor)
        rate = optimizer.param_groups[0]["lr"]
        self._logged = {"train/loss": loss, "train/learning_rate": torch.as_tensor(rate).clone()}

    def lr_scheduler_step(self, scheduler: Any, metric: Any) -> None:
        """Nothing: the schedule follows the optimizer's real updates by itself."""

    def on_train_batch_end(self, outputs: Any, batch: Batch, batch_idx: int) -> None:
        """Log loss and rate of the step and the number of real updates, where they are written.

        Logging costs the host more than all the rest of a step, so that a fast GPU would wait.
        """
        trainer: Any = self.trainer
        if trainer.global_step % trainer.log_every_n_steps and not trainer.is_last_batch:
            return
        updates = self.update_schedule.optimizer_steps.float()
        self.log_dict({**self._logged, "train/optimizer_steps": updates})

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Count a batch of the validation split."""
        self._evaluate(batch)

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        """Count a batch of the test split."""
        self._evaluate(batch)

    def _evaluate(self, batch: Batch) -> None:
        logits = self.evaluate_batch(batch)
        losses = cross_entropy(logits, batch["labels"], reduction="none")
        self.metrics.update(logits, batch["labels"], losses)

    def evaluate_batch(self, batch: Batch) -> Tensor:
        """Return logits, float32 of shape (B, C), by the way that was chosen for the run."""
        if self._studio is None:
            logits: Tensor = self(batch["input_ids"], batch["attention_mask"])
            return logits.float()
        self._evaluation = self._evaluation or CapturedForward(
            self.network,
            self.chosen.dtype,
            self.max_positions,
            self._studio,
        )
        return self._evaluation(batch)

    def on_validation_epoch_end(self) -> None:
        """Log ``val/loss``, ``val/accuracy`` and ``val/macro_f1``."""
        self._finish_evaluation("val")

    def on_test_epoch_end(self) -> None:
        """Log ``test/loss``, ``test/accuracy`` and ``test/macro_f1``."""
        self._finish_evaluation("test")

    def _finish_evaluation(self, stage: str) -> None:
        result = self.metrics.summary()
        self.metrics.reset()
        # every process holds the same sums by now, so there is nothing left to reduce
        self.log_dict({f"{stage}/{score}": result[score] for score in SCORES})
        if self.trainer.sanity_checking:
            return
        self.results[stage] = result
        if not math.isfinite(result["loss"]):
            is_fp16 = self.trainer.precision == "16-mixed"
            raise TrainingError(
                f"{stage}/loss: expected a number – found {result['loss']} after"
                f" {self.trainer.global_step} steps, so the weights are no longer usable\n"
                "begin again, or go on with an earlier checkpoint if there is one, with a lower"
                " --model.learning_rate or longer --model.warmup_ratio"
                + (", or with --trainer.precision bf16-mixed" if is_fp16 else "")
            )

    def predict_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        """Return ``rows`` (row numbers, NumPy) and ``probabilities`` (float32, shape (B, C))."""
        logits = self.evaluate_batch(batch)
        return {"rows": batch["rows"], "probabilities": logits.softmax(dim=-1)}

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """AdamW with warm-up and a schedule, counted in real updates."""
        optimizer, schedule = build_optimizer(
            self.network,
            self.learning_rate,
            self.weight_decay,
            self.warmup_ratio,
            int(self.trainer.estimated_stepping_batches),
            schedule=self.schedule,
            layer_decay=self.layer_decay,
            fused=self.fused_optimizer,
            scaled=getattr(self.trainer.precision_plugin, "scaler", None) is not None,
            device=self.trainer.strategy.root_device,
            flat=self._flat_optimizer if self.chosen.name == "captured" else None,
        )
        return {  # type: ignore[return-value] # not of torch's class, see lr_scheduler_step
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": schedule, "interval": "step", "frequency": 1},
        }

    def _flat_optimizer(self, groups: list[dict[str, Any]]) -> FlatAdamW:
        return FlatAdamW(
            groups,
            product_parameters(self.network),
            self.chosen.dtype,
            accumulates=self.trainer.accumulate_grad_batches > 1,
            compiled=self.chosen.compiles,
        )

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add all that validate, test and predict need besides the weights."""
        config = self.network.config.to_dict()
        config.pop("dtype", None)
        checkpoint["bert_lightning"] = {
            **checkpoint.get("bert_lightning", {}),
            "format_version": FORMAT_VERSION,
            "backbone": self.backbone.name,
            "class_names": list(self.class_names),
            "learning_rate": self.learning_rate,
            "model_config": config,
            "tokenizer_files": self._tokenizer_files,
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Refuse a checkpoint of other classes, before its weights fail to fit."""
        self.check_checkpoint(checkpoint, self.trainer.training)

    def check_checkpoint(self, checkpoint: dict[str, Any], trains: bool) -> None:
        """Refuse a checkpoint that does not fit.

        Args:
            checkpoint: Its content.
            trains: Whether its optimizer is to go on, too.

        Raises:
            CheckpointError: Of other classes, or of other groups of weights.
        """
        stored = checkpoint["bert_lightning"]["class_names"]
        if stored != self.class_names:
            raise CheckpointError(
                f"ckpt_path: expected a checkpoint of the data's {len(self.class_names)} classes"
                f" {self.class_names} – found {len(stored)}: {stored}\n"
                "take the data that the checkpoint was trained on, or train anew with"
                " --model.pretrained CHECKPOINT"
            )
        if not trains:
            return
        try:
            self._check_groups(checkpoint)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                "ckpt_path: expected the optimizer's state as it was written – found another form"
                f"\n{_WRITTEN}"
            ) from error

    def _check_groups(self, checkpoint: dict[str, Any]) -> None:
        """Refuse optimizer states that do not fit the weights trained now."""
        states = checkpoint.get("optimizer_states") or [{"param_groups": None}]
        stored = states[0]["param_groups"]
        groups = parameter_groups(self.network, 0.0, 1.0, self.layer_decay)
        sizes = [len(group["params"]) for group in groups]
        if stored is not None and [len(group["params"]) for group in stored] != sizes:
            raise CheckpointError(
                "model.layer_decay, model.frozen_layers: expected those of the run to go on with"
                f" – found other groups of weights: {sizes} instead of"
                f" {[len(group['params']) for group in stored]} weights\n"
                "leave both keys out, or train anew with --model.pretrained CHECKPOINT"
            )
        self._check_moments(checkpoint, groups)

    def _check_moments(self, checkpoint: dict[str, Any], groups: list[dict[str, Any]]) -> None:
        """Refuse sums of AdamW of other shapes: the fused one would write past their end."""
        names = {weight: f"network.{name}" for name, weight in self.network.named_parameters()}
        for states in checkpoint.get("optimizer_states") or []:
            for group, stored in zip(groups, states["param_groups"], strict=True):
                for weight, key in zip(group["params"], stored["params"], strict=True):
                    # FSDP has taken the weights out, and looks at the shapes itself
                    saved = checkpoint.get("state_dict", {}).get(names[weight])
                    state = states["state"].get(key)
                    if saved is not None and state and not _fits(state, saved.shape):
                        raise CheckpointError(
                            f"ckpt_path: expected sums of AdamW as large as {names[weight]},"
                            f" {list(saved.shape)} – found others\n{_WRITTEN}"
                        )


def _fits(state: Any, shape: torch.Size) -> bool:
    """Tell whether a state of AdamW is one of a weight of this shape."""
    sums = [state.get(name) for name in ("exp_avg", "exp_avg_sq")]
    return all(isinstance(value, Tensor) and value.shape == shape for value in sums)
