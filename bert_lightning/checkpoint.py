"""Checkpoint files: what is in them, and which one ``best`` and ``last`` mean.

Beside Lightning's own content a checkpoint has the entry ``bert_lightning``: format version, class
names, tokenizer files, model configuration and the settings of the run, all plain types, so that it
loads with ``weights_only=True`` and needs no other file.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import torch

from bert_lightning.errors import CheckpointError
from bert_lightning.runs import RUNS, run_numbers, seed_folders

FORMAT_VERSION = 1
CHECKPOINTS = "checkpoints"
BEST, LAST = "best.ckpt", "last.ckpt"


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint without running any code that it may hold; tensors stay on disk until used.

    Raises:
        CheckpointError: Missing, damaged, not of this project, or of an unknown format version.
    """
    if not path.is_file():
        raise CheckpointError(
            f"ckpt_path: expected a checkpoint file – found nothing at {path.absolute()}\n"
            "give a .ckpt file, a run folder, best or last"
        )
    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # wrong bytes end in errors of any kind
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise CheckpointError(
            f"ckpt_path: expected a checkpoint of bert_lightning – {path} cannot be read:"
            f" {reason.split('. ')[0][:120]}\nthe file is damaged or not a checkpoint;"
            f" {_intact_beside(path)}"
        ) from error
    stored = content.get("bert_lightning") if isinstance(content, dict) else None
    if not isinstance(stored, dict):
        raise CheckpointError(
            f"ckpt_path: expected a checkpoint of bert_lightning – {path} was not written by it\n"
            "a model folder goes into --model.pretrained instead"
        )
    if stored.get("format_version") != FORMAT_VERSION:
        raise CheckpointError(
            f"ckpt_path: expected checkpoint format {FORMAT_VERSION} – {path} has format"
            f" {stored.get('format_version')!r}\nread it with the release that wrote it"
        )
    return dict(content)


def _intact_beside(damaged: Path) -> str:
    """Say which checkpoints of the same folder can be taken instead."""
    intact = []
    for path in sorted(damaged.parent.glob("*.ckpt")):
        with contextlib.suppress(Exception):  # as in read_checkpoint
            torch.load(path, map_location="meta", weights_only=True, mmap=True)
            intact.append(str(path))
    return f"intact beside it: {', '.join(intact)}" if intact else "none beside it is intact"


def find_checkpoint(name: str, root: Path, default: str = BEST) -> Path:
    """Turn ``best``, ``last``, a run folder or a path into a checkpoint file.

    Args:
        name: What was given as ``ckpt_path``.
        root: Folder that holds ``runs/``.
        default: File taken from a run folder.

    Raises:
        CheckpointError: No run has such a checkpoint, or the path is missing.
    """
    if name in ("best", "last"):
        for number in reversed(run_numbers(root)):
            run = root / RUNS / str(number)
            file = run / CHECKPOINTS / f"{name}.ckpt"
            if file.is_file():
                return file
            _expect_no_seeds(run, name)
        raise CheckpointError(
            f"ckpt_path: expected a run with a {name} checkpoint – found none in"
            f" {(root / RUNS).absolute()}\ntrain first (fit), or give the path of a .ckpt file"
        )
    path = Path(name)
    if path.is_dir():
        _expect_no_seeds(path, Path(default).stem)
        file = path / CHECKPOINTS / default
        if not file.is_file():
            present = ", ".join(sorted(str(f.relative_to(path)) for f in path.rglob("*.ckpt")))
            raise CheckpointError(
                f"ckpt_path: expected {CHECKPOINTS}/{default} in {path.absolute()} – found"
                f" {present or 'no checkpoint'}\ngive a run folder that has one, or a .ckpt file"
            )
        return file
    if not path.is_file():
        raise CheckpointError(
            f"ckpt_path: expected a checkpoint file – found nothing at {path.absolute()}\n"
            "give a .ckpt file, a run folder, best or last"
        )
    return path


def _expect_no_seeds(run: Path, name: str) -> None:
    """Refuse a run of several seeds: which of them is meant is for the user to say."""
    folders = [path for path in seed_folders(run) if (path / CHECKPOINTS / f"{name}.ckpt").exists()]
    if folders:
        raise CheckpointError(
            f"ckpt_path: expected one run – found {run}, whose {len(folders)} seeds have a {name}"
            f" checkpoint each\ngive one of {', '.join(map(str, folders))}"
        )
