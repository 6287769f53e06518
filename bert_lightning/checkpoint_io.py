"""Writes checkpoints so that a kill at any byte leaves the one before, and a full disk is told."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins import TorchCheckpointIO
from typing_extensions import override

from bert_lightning.checkpoint import CHECKPOINTS, seal, way_on
from bert_lightning.errors import TrainingError
from bert_lightning.limits import size_limit

_BESIDE_TENSORS = 1 << 20  # bytes, generously: names, settings, tokenizer
_TORCH_WRITER = "inline_container"  # what torch says where a write fails, whatever the reason


class SafeCheckpointIO(TorchCheckpointIO):
    """Writes beside the old file, with a checksum, waits for the disk, and then takes its place."""

    @override
    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None
    ) -> None:
        if "://" in str(path):  # not a file system of this machine
            super().save_checkpoint(checkpoint, path, storage_options)
            return
        file = Path(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        _expect_room(file.parent, tensor_bytes(checkpoint) + _BESIDE_TENSORS)
        beside = file.with_name(file.name + ".tmp")
        try:
            torch.save(checkpoint, beside)
            seal(beside)
            _wait_for_disk(beside)
            beside.replace(file)
            _wait_for_disk(file.parent)
        except BaseException as error:
            left = shutil.disk_usage(file.parent).free
            size = beside.stat().st_size if beside.exists() else 0
            beside.unlink(missing_ok=True)
            if not isinstance(error, OSError) and _TORCH_WRITER not in str(error):
                raise
            if left < _BESIDE_TENSORS:
                raise _full(file.parent, size + left, tensor_bytes(checkpoint)) from error
            raise _failed(file, error) from error


def tensor_bytes(value: Any) -> int:
    """Return the size in bytes of all tensors in nested plain types; shared ones count once."""
    seen: dict[int, int] = {}

    def walk(value: Any) -> None:
        if isinstance(value, torch.Tensor):
            storage = value.untyped_storage()
            seen[storage.data_ptr()] = storage.nbytes()
        elif isinstance(value, Mapping):
            for entry in value.values():
                walk(entry)
        elif isinstance(value, Iterable) and not isinstance(value, str | bytes):
            for entry in value:
                walk(entry)

    walk(value)
    return sum(seen.values())


def _expect_room(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise _full(folder, free, needed)


def _full(folder: Path, free: int, needed: int) -> TrainingError:
    return TrainingError(
        f"{folder}: expected {_size(needed)} free for a checkpoint – found {_size(free)}\n"
        f"make room; {_way_on(folder)}"
    )


def _failed(file: Path, error: BaseException) -> TrainingError:
    of_disk = "a disk, or a quota on it, that takes no more"
    reason = getattr(error, "strerror", None) or size_limit() or of_disk
    return TrainingError(
        f"{file}: expected to write a checkpoint – found {reason}\n"
        f"mend this; {_way_on(file.parent)}"
    )


def _way_on(folder: Path) -> str:
    is_of_run = folder.name == CHECKPOINTS  # a user's own callback may write elsewhere
    return way_on(folder.parent) if is_of_run else "the checkpoints that are there are whole"


def _size(count: int) -> str:
    return f"{count / 2**20:,.0f} MiB"


def _wait_for_disk(path: Path) -> None:
    """Return when a file, or the names in a folder, will outlast a loss of power."""
    if os.name == "nt" and path.is_dir():  # Windows opens no folders
        return
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
