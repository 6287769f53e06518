"""Settings that do not fit one another, found after construction and before anything is written."""

from __future__ import annotations

from typing import Any

from bert_lightning.errors import ConfigError


def check_settings(trainer: Any, max_length: int, max_positions: int, is_fit: bool) -> None:
    """Refuse combinations that would fail or mislead later.

    Args:
        trainer: The ``trainer`` group of the configuration.
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
    if is_fit and trainer.max_epochs in (None, -1) and trainer.max_steps == -1:
        problems.append(
            "trainer.max_epochs: expected a number, since the learning rate falls to 0 over the run"
            f" – found {trainer.max_epochs}\nset trainer.max_epochs or trainer.max_steps"
        )
    if problems:
        raise ConfigError("\n".join(problems))
