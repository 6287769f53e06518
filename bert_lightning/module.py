"""Batch → logits → loss → metric: the LightningModule."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.core.optimizer import LightningOptimizer
from lightning.pytorch.strategies import FSDPStrategy
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.optim.lr_scheduler import LambdaLR

from bert_lightning.backbone import build_network, resolve_backbone, tokenizer_files
from bert_lightning.checkpoint import FORMAT_VERSION
from bert_lightning.data.encoding import Batch
from bert_lightning.errors import CheckpointError, ConfigError, TrainingError
from bert_lightning.metrics import SCORES, EvaluationMetrics
from bert_lightning.optim import build_optimizer, override_restored


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
        warmup_ratio: Share of all optimizer steps over which the rate rises; it falls linearly
            after.
        dropout: Dropout of hidden states, attention and classifier; null keeps the model's own.
        class_weights: Weight of each class in the training loss; set by data.class_weights.
    """

    class_weights: Tensor | None

    def __init__(
        self,
        pretrained: str = "auto",
        class_names: list[str] | None = None,
        learning_rate: float | Literal["auto"] = "auto",
        weight_decay: float = 0.01,
        warmup_ratio: float = 0.1,
        dropout: float | None = None,
        class_weights: list[float] | None = None,
    ) -> None:
        super().__init__()
        _check_ranges(learning_rate, weight_decay, warmup_ratio, dropout)
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
        self.network, self.backbone_note = build_network(self.backbone, class_names, dropout)
        weights = None if class_weights is None else torch.tensor(class_weights)
        self.register_buffer("class_weights", weights, persistent=False)
        self._tokenizer_files = tokenizer_files(self.backbone.tokenizer)
        self.metrics = EvaluationMetrics(len(class_names))
        self.results: dict[str, dict[str, Any]] = {}

    @property
    def tokenizer(self) -> Any:
        """The tokenizer that belongs to the weights."""
        return self.backbone.tokenizer

    @property
    def max_positions(self) -> int:
        """Longest input, in pieces, that the position embeddings allow."""
        return int(self.backbone.config.max_position_embeddings)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return logits, shape (B, C), for int64 ids and mask of shape (B, T)."""
        logits: Tensor = self.network(input_ids=input_ids, attention_mask=attention_mask).logits
        return logits

    def on_train_start(self) -> None:
        """Let the learning rate and decay in force be the configured ones, also after a resume.

        A short epoch is logged at least once.
        """
        windows = -(-int(self.trainer.num_training_batches) // self.trainer.accumulate_grad_batches)
        interval: int = self.trainer.log_every_n_steps  # type: ignore[attr-defined]
        self.trainer.log_every_n_steps = max(1, min(interval, windows))  # type: ignore[attr-defined]
        optimizer, schedule = self.optimizers(), self.lr_schedulers()
        assert isinstance(optimizer, LightningOptimizer)
        assert isinstance(schedule, LambdaLR)
        override_restored(optimizer.optimizer, schedule, self.learning_rate, self.weight_decay)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Return the mean cross-entropy over the batch's rows, each weighted as its class is.

        Validation and test never weigh, so that their losses compare from run to run.
        """
        logits = self(batch["input_ids"], batch["attention_mask"])
        loss = cross_entropy(logits.float(), batch["labels"], weight=self.class_weights)
        self.log("train/loss", loss.detach(), batch_size=len(logits))
        return loss

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Log the learning rate of the step that is about to be taken."""
        self.log("train/learning_rate", optimizer.param_groups[0]["lr"])

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Count a batch of the validation split."""
        self._evaluate(batch)

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        """Count a batch of the test split."""
        self._evaluate(batch)

    def _evaluate(self, batch: Batch) -> None:
        logits = self(batch["input_ids"], batch["attention_mask"]).float()
        losses = cross_entropy(logits, batch["labels"], reduction="none")
        self.metrics.update(logits, batch["labels"], losses)

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
            raise TrainingError(
                f"{stage}/loss: expected a number – found {result['loss']} after"
                f" {self.trainer.global_step} steps, so the weights are no longer usable\n"
                "resume from an earlier checkpoint with a lower --model.learning_rate, or with"
                " --trainer.precision bf16-mixed"
            )

    def predict_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        """Return ``rows`` (row numbers, NumPy) and ``probabilities`` (float32, shape (B, C))."""
        logits = self(batch["input_ids"], batch["attention_mask"])
        return {"rows": batch["rows"], "probabilities": logits.float().softmax(dim=-1)}

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """AdamW with warm-up and linear decay, counted in optimizer steps."""
        total_steps = int(self.trainer.estimated_stepping_batches)
        optimizer, schedule = build_optimizer(
            self.network,
            self.learning_rate,
            self.weight_decay,
            self.warmup_ratio,
            total_steps,
        )
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": schedule, "interval": "step", "frequency": 1},
        }

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip as Lightning does; FSDP holds a part of each gradient and clips by its own norm."""
        strategy = self.trainer.strategy
        by_norm = gradient_clip_algorithm in (None, "norm")
        if isinstance(strategy, FSDPStrategy) and gradient_clip_val and by_norm:
            strategy.model.clip_grad_norm_(gradient_clip_val)  # type: ignore[union-attr, operator]
        else:
            self.clip_gradients(optimizer, gradient_clip_val, gradient_clip_algorithm)

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
        stored = checkpoint["bert_lightning"]["class_names"]
        if stored != self.class_names:
            raise CheckpointError(
                f"ckpt_path: expected a checkpoint of the data's {len(self.class_names)} classes"
                f" {self.class_names} – found {len(stored)}: {stored}\n"
                "take the data that the checkpoint was trained on, or train anew with"
                " --model.pretrained CHECKPOINT"
            )


def _check_ranges(
    learning_rate: float | str, weight_decay: float, warmup_ratio: float, dropout: float | None
) -> None:
    problems = []
    if learning_rate != "auto" and not 0 < float(learning_rate) < math.inf:
        problems.append(f"model.learning_rate: expected a number above 0 – found {learning_rate}")
    if not 0 <= weight_decay < math.inf:
        problems.append(f"model.weight_decay: expected 0 or more – found {weight_decay}")
    if not 0 <= warmup_ratio <= 1:
        problems.append(f"model.warmup_ratio: expected 0 to 1 – found {warmup_ratio}")
    if dropout is not None and not 0 <= dropout < 1:
        problems.append(f"model.dropout: expected 0 up to, but not, 1 – found {dropout}")
    if problems:
        raise ConfigError("\n".join(problems))
