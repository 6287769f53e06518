"""Logits and labels → counts → scores, each row once over all processes.

All scores come from sums of counts that torchmetrics adds up over the processes, the loss among
them as a row-weighted mean; so 1 and 2 processes give the same digits. Macro-F1 is the mean over
classes that occur among labels or predictions; a class that is predicted but never true counts as
0.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torchmetrics import MeanMetric, MetricCollection
from torchmetrics.classification import (
    MulticlassAccuracy,
    MulticlassConfusionMatrix,
    MulticlassF1Score,
    MulticlassPrecision,
    MulticlassRecall,
)

SCORES = ("loss", "accuracy", "macro_f1")
LOGGED_NAMES = (
    "train/loss",
    "train/learning_rate",
    "train/optimizer_steps",
    "train/samples_per_second",
    *(f"{stage}/{score}" for stage in ("val", "test") for score in SCORES),
)


class EvaluationMetrics(nn.Module):
    """Loss, accuracy, macro-F1, precision, recall and F1 of each class, confusion matrix.

    Args:
        num_classes: C; labels and predictions are class indices from 0 to C - 1.
    """

    def __init__(self, num_classes: int) -> None:
        options: dict[str, Any] = {"num_classes": num_classes, "validate_args": False}
        super().__init__()
        self.counts = MetricCollection(
            {
                "accuracy": MulticlassAccuracy(average="micro", **options),
                "macro_f1": MulticlassF1Score(average="macro", **options),
                "precision": MulticlassPrecision(average="none", **options),
                "recall": MulticlassRecall(average="none", **options),
                "f1": MulticlassF1Score(average="none", **options),
                "confusion": MulticlassConfusionMatrix(**options),
            }
        )
        self.mean_loss = MeanMetric(nan_strategy="disable")  # hide nothing

    def update(self, logits: Tensor, labels: Tensor, losses: Tensor) -> None:
        """Count a batch.

        Args:
            logits: float, shape (B, C).
            labels: int64, shape (B,).
            losses: Cross-entropy of each row, float, shape (B,).
        """
        self.counts.update(logits.argmax(dim=-1), labels)
        self.mean_loss.update(losses.float())

    def summary(self) -> dict[str, Any]:
        """Return plain numbers: scores, lists of one value a class, and the confusion matrix.

        The confusion matrix has one row a true class and one column a predicted class.
        """
        values = self.counts.compute()
        confusion = values.pop("confusion").long()
        plain: dict[str, Any] = {name: value.tolist() for name, value in values.items()}
        return {
            "loss": float(self.mean_loss.compute()),
            **plain,
            "support": confusion.sum(dim=1).tolist(),
            "rows": int(confusion.sum()),
            "confusion": confusion.tolist(),
        }

    def reset(self) -> None:
        """Forget all counts."""
        self.counts.reset()
        self.mean_loss.reset()
