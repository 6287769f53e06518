"""Settings that do not fit one another, found after construction and before anything is written."""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from typing import Any

import torch
from lightning.pytorch.callbacks import (
    BackboneFinetuning,
    GradientAccumulationScheduler,
    LearningRateFinder,
    StochasticWeightAveraging,
    WeightAveraging,
)

from bert_lightning.errors import ConfigError
from bert_lightning.metrics import LOGGED_NAMES

_FOREIGN = {
    StochasticWeightAveraging: ("brings its own", "EMAWeightAveraging"),
    LearningRateFinder: ("brings its own", "model.learning_rate auto, or runs with a few rates"),
    GradientAccumulationScheduler: (
        "changes the number of steps that it counts",
        "trainer.accumulate_grad_batches",
    ),
    BackboneFinetuning: ("changes it as layers thaw", "model.frozen_layers or model.layer_decay"),
}


def check_settings(
    trainer: Any, callbacks: Sequence[Any], max_length: int, max_positions: int, is_fit: bool
) -> None:
    """Refuse combinations that would fail or mislead later.

    Args:
        trainer: The ``trainer`` group of the configuration.
        callbacks: The user's own callbacks.
        max_length: Most pieces of a row.
        max_positions: Longest input that the model's position embeddings allow.
        is_fit: Whether a learning-rate schedule is needed.

    Raises:
        ConfigError: All faults found.
    """
    problems = []
    if max_length > max_positions:
        problems.append(
            f"data.max_length: expected at most {max_positions}, the model's position embeddings"
            f" – found {max_length}"
        )
    if trainer.use_distributed_sampler:
        problems.append(
            "trainer.use_distributed_sampler: expected false, as rows are dealt to the processes"
            " already – found true\nremove the key"
        )
    for key in ("accumulate_grad_batches", "log_every_n_steps"):
        if trainer[key] is not None and trainer[key] < 1:
            problems.append(f"trainer.{key}: expected 1 or more – found {trainer[key]}")
    clip = trainer.gradient_clip_val
    if clip is not None and not clip >= 0:  # nor is NaN; less would turn the gradient round
        problems.append(f"trainer.gradient_clip_val: expected 0 or more, or null – found {clip:g}")
    if is_fit and trainer.limit_train_batches == 0:
        problems.append(
            "trainer.limit_train_batches: expected batches to train on – found"
            f" {trainer.limit_train_batches}\nremove the key; validate and test score only"
        )
    if is_fit:
        problems += [line for callback in callbacks for line in _monitor_problems(callback)]
        problems += [line for callback in callbacks for line in _foreign_problems(callback)]
        problems += [line for callback in callbacks for line in _average_problems(callback)]
    if is_fit and trainer.max_epochs in (None, -1) and trainer.max_steps == -1:
        problems.append(
            "trainer.max_epochs: expected a number, since the learning rate falls to 0 over the run"
            f" – found {trainer.max_epochs}\nset trainer.max_epochs or trainer.max_steps"
        )
    if problems:
        raise ConfigError("\n".join(problems))


def check_saving(seconds: float) -> None:
    """Refuse an interval that is no number: nothing would ever be saved by it.

    Raises:
        ConfigError: It is none.
    """
    if math.isnan(seconds):
        raise ConfigError(f"save_every_seconds: expected a number of seconds – found {seconds}")


def _monitor_problems(callback: Any) -> list[str]:
    """Find a name that fit never logs, which would come up after the first epoch only."""
    monitor = getattr(callback, "monitor", None)
    logged = [name for name in LOGGED_NAMES if not name.startswith("test/")]
    if monitor is None or monitor in (*logged, "epoch", "step") or monitor.startswith("lr-"):
        return []
    near = difflib.get_close_matches(monitor, logged, n=1, cutoff=0.0)[0]
    return [
        f"trainer.callbacks: expected {type(callback).__name__} to monitor one of"
        f" {', '.join(logged)} – found {monitor!r}\ndid you mean {near}?"
    ]


def _foreign_problems(callback: Any) -> list[str]:
    """Find a callback of Lightning that works on a schedule or a backbone of another kind."""
    return [
        f"trainer.callbacks: expected callbacks that leave the learning rate to model.schedule –"
        f" found {kind.__name__}, which {reason}\ntake {instead}"
        for kind, (reason, instead) in _FOREIGN.items()
        if isinstance(callback, kind)
    ]


def _average_problems(callback: Any) -> list[str]:
    """Find an average on a device that is not there, which would come up as torch's failure."""
    device = callback._device if isinstance(callback, WeightAveraging) else None
    if device is None or str(device).startswith("cpu") or torch.accelerator.is_available():
        return []
    return [
        f"trainer.callbacks: expected {type(callback).__name__} to average on a device of this"
        f" machine – found device {device}, and no GPU\nleave its device out"
    ]
