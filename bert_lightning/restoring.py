"""Lightning restores a run from a checkpoint; what does not fit in it is told in words.

A checkpoint whose bytes are whole may still hold states of another form: another program or another
release wrote it, or somebody changed it. Lightning and torch take states as they come and fail on
them in many ways, some of them only in the midst of training.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from lightning.pytorch.trainer.connectors.checkpoint_connector import _CheckpointConnector

from bert_lightning.checkpoint import expect_numbers
from bert_lightning.errors import CheckpointError

_OF_FORM = (LookupError, TypeError, AttributeError, ValueError, RuntimeError, AssertionError)
_NOT_OF_FORM = (torch.OutOfMemoryError, dist.DistError)


def _told_in_words(restore: Callable[..., None]) -> Callable[..., None]:
    """Turn what restoring raises into an error that names the checkpoint."""

    @functools.wraps(restore)
    def told(self: CheckpointConnector, *args: Any, **kwargs: Any) -> None:
        try:
            restore(self, *args, **kwargs)
        except _OF_FORM as error:
            if isinstance(error, _NOT_OF_FORM):
                raise
            said = " ".join(str(error).split())[:200]
            raise refusal(self._ckpt_path, f"{type(error).__name__}: {said}") from error

    return told


def refusal(path: Any, found: str) -> CheckpointError:
    """Return the error that a checkpoint does not hold a run as this program writes it.

    Args:
        path: The checkpoint.
        found: What is wrong with it.
    """
    return CheckpointError(
        f"ckpt_path: expected states as this program writes them in {path} – found {found}\n"
        "take another checkpoint of the run, or train anew from its weights with"
        " --model.pretrained CHECKPOINT"
    )


class CheckpointConnector(_CheckpointConnector):
    """Lightning's, with errors that name the checkpoint."""

    resume_start = _told_in_words(_CheckpointConnector.resume_start)
    restore_model = _told_in_words(_CheckpointConnector.restore_model)
    restore_callbacks = _told_in_words(_CheckpointConnector.restore_callbacks)
    restore_training_state = _told_in_words(_CheckpointConnector.restore_training_state)

    def restore_loops(self) -> None:
        """Compare what was counted with what these loops count, which take it as it comes."""
        loops = self._loaded_checkpoint.get("loops")
        if loops is not None and self.trainer.training:
            other = unlike(loops["fit_loop"], self.trainer.fit_loop.state_dict(), "fit_loop")
            if other:
                raise refusal(self._ckpt_path, f"another form of {', '.join(other)}")
        super().restore_loops()

    def restore_optimizers_and_schedulers(self) -> None:
        """Expect a state for each: Lightning leaves one without a state as it is."""
        stored = self._loaded_checkpoint
        configured: dict[str, Any] = {"lr_schedulers": self.trainer.lr_scheduler_configs}
        if self.trainer.strategy.lightning_restore_optimizer:
            configured["optimizer_states"] = self.trainer.optimizers
        for name, objects in configured.items():
            if len(stored[name]) != len(objects):
                found = f"{len(stored[name])} {name} instead of {len(objects)}"
                raise refusal(self._ckpt_path, found)
        super().restore_optimizers_and_schedulers()
        expect_numbers(Path(str(self._ckpt_path)), {**stored, "state_dict": {}})
        updates = stored["lr_schedulers"][0].get("optimizer_steps", 0)
        sums = [states["state"] for states in stored["optimizer_states"]]
        if "optimizer_states" in configured and updates and not all(sums):
            raise refusal(self._ckpt_path, f"an optimizer without sums after {updates:,} updates")


def unlike(found: Any, own: Any, name: str) -> list[str]:
    """Return the names of what is missing, of another kind or below 0.

    Args:
        found: A state that was read.
        own: The same state of a run that has not begun; what it lacks may be anything.
        name: Of both.
    """
    if isinstance(own, dict):
        if not isinstance(found, dict):
            return [name]
        keys = [key for key in own if own[key] != {}]  # what is empty as yet says nothing
        return [part for key in keys for part in unlike(found.get(key), own[key], f"{name}.{key}")]
    is_count = isinstance(found, int) and found >= 0
    return [] if type(found) is type(own) and (is_count or not isinstance(own, int)) else [name]
