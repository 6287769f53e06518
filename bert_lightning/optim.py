"""Parameters → AdamW groups; optimizer steps → learning rate."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR


def parameter_groups(network: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Split trainable parameters: no decay for biases and LayerNorm weights, as BERT was trained.

    Source: Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers", 2019, released
        code.
    """
    decayed: list[nn.Parameter] = []
    plain: list[nn.Parameter] = []
    for name, parameter in network.named_parameters():
        if parameter.requires_grad:
            # told by name, since FSDP leaves nothing of the shapes
            is_plain = name.endswith(("bias", "LayerNorm.weight"))
            (plain if is_plain else decayed).append(parameter)
    return [
        {"params": decayed, "weight_decay": weight_decay},
        {"params": plain, "weight_decay": 0.0},
    ]


def warmup_linear(step: int, warmup_steps: int, total_steps: int) -> float:
    """Return the factor on the learning rate before optimizer step ``step`` (0-based).

    Rises from 1/warmup_steps to 1 over the warm-up, then falls linearly to 0 at ``total_steps``.

    >>> [warmup_linear(step, 2, 6) for step in range(7)]
    [0.5, 1.0, 1.0, 0.75, 0.5, 0.25, 0.0]
    """
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    return max(0.0, (total_steps - step) / max(1, total_steps - warmup_steps))


def build_optimizer(
    network: nn.Module,
    learning_rate: float,
    weight_decay: float,
    warmup_ratio: float,
    total_steps: int,
) -> tuple[AdamW, LambdaLR]:
    """Make AdamW and its schedule, which is to be advanced once an optimizer step.

    Args:
        network: The model to train.
        learning_rate: Peak rate.
        weight_decay: Decay of weight matrices.
        warmup_ratio: Share of ``total_steps`` that rises.
        total_steps: Optimizer steps of the whole run.
    """
    warmup_steps = round(warmup_ratio * total_steps)
    # the foreach form on the CPU would copy; on CUDA it is torch's own default
    optimizer = torch.optim.AdamW(parameter_groups(network, weight_decay), lr=learning_rate)
    schedule = LambdaLR(optimizer, lambda step: warmup_linear(step, warmup_steps, total_steps))
    return optimizer, schedule


def override_restored(
    optimizer: torch.optim.Optimizer, schedule: LambdaLR, learning_rate: float, weight_decay: float
) -> None:
    """Put the given rate and decay in place of those that a checkpoint brought back.

    The position in the schedule stays.
    """
    factor = schedule.lr_lambdas[0](schedule.last_epoch)
    schedule.base_lrs = [learning_rate for _ in optimizer.param_groups]
    for group in optimizer.param_groups:
        group["initial_lr"] = learning_rate
        group["lr"] = learning_rate * factor
    optimizer.param_groups[0]["weight_decay"] = weight_decay  # the second group is never decayed
