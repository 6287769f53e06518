"""Ranges of the numbers that a model is trained with."""

from __future__ import annotations

import math

from bert_lightning.errors import ConfigError


def check_training_options(
    layer_decay: float,
    label_smoothing: float,
    class_weights: list[float] | None,
    class_names: list[str] | None,
) -> None:
    """Refuse settings of training that mean nothing.

    Args:
        layer_decay: As in the module.
        label_smoothing: As in the module.
        class_weights: As in the module.
        class_names: Of the data.

    Raises:
        ConfigError: All faults found.
    """
    problems = []
    if not 0 < layer_decay <= 1:
        problems.append(f"model.layer_decay: expected above 0, up to 1 – found {layer_decay}")
    if not 0 <= label_smoothing < 1:
        problems.append(
            f"model.label_smoothing: expected 0 up to, but not, 1 – found {label_smoothing}"
        )
    if class_weights is not None:
        if class_names and len(class_weights) != len(class_names):
            problems.append(
                f"model.class_weights: expected {len(class_names)} numbers, one a class – found"
                f" {len(class_weights)}"
            )
        if not all(0 <= weight < math.inf for weight in class_weights) or not any(class_weights):
            problems.append(
                f"model.class_weights: expected 0 or more, not all 0 – found {class_weights}"
            )
    if problems:
        raise ConfigError("\n".join(problems))


def check_ranges(
    learning_rate: float | str, weight_decay: float, warmup_ratio: float, dropout: float | None
) -> None:
    """Refuse numbers that nothing can be trained with.

    Args:
        learning_rate: As in the module.
        weight_decay: As in the module.
        warmup_ratio: As in the module.
        dropout: As in the module.

    Raises:
        ConfigError: All faults found.
    """
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
