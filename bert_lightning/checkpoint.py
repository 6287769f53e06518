"""Checkpoint files: what is in them, and which one ``best`` and ``last`` mean.

Beside Lightning's own content a checkpoint has the entry ``bert_lightning``: format version, class
names, tokenizer files, model configuration and the settings of the run, all plain types, so that it
loads with ``weights_only=True`` and needs no other file.

A checkpoint is a zip file, as torch writes it; its comment holds a checksum of all that comes
before, so that a cut or a changed bit is found before anything is taken from it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from bert_lightning.errors import CheckpointError
from bert_lightning.runs import RUNS, run_numbers, seed_folders

FORMAT_VERSION = 1
CHECKPOINTS = "checkpoints"
BEST, LAST, PREVIOUS = "best.ckpt", "last.ckpt", "previous.ckpt"
_SEAL = b"bert_lightning crc32 "  # and eight hexadecimal digits, as the comment of the zip file
_SEAL_BYTES = len(_SEAL) + 8
_CHUNK = 1 << 24
_ENTRIES = {
    "class_names": list,
    "tokenizer_files": dict,
    "model_config": dict,
    "backbone": str,
    "learning_rate": float,
}
_STATE = {
    "epoch": int,
    "global_step": int,
    "loops": dict,
    "callbacks": dict,
    "optimizer_states": list,
    "lr_schedulers": list,
}
_DATA = {"fingerprint": str, "holdout_ratio": float, "seed": int}
_SETTINGS = {"seed_everything": int, "trainer": dict, "data": dict}


def seal(path: Path) -> None:
    """Put a checksum at the end of a checkpoint that torch has written."""
    with path.open("r+b") as file:
        file.seek(-2, os.SEEK_END)  # the length of the comment, 0 until now
        file.write(_SEAL_BYTES.to_bytes(2, "little"))
        file.seek(0)
        checksum = _checksum(file, path.stat().st_size)
        file.write(_SEAL + f"{checksum:08x}".encode())


def damage(path: Path) -> str | None:
    """Return what is wrong with the bytes of a checkpoint, or None; one without a seal is unzipped.

    Args:
        path: A file that exists.
    """
    state = path.stat()
    return _damage(path, state.st_size, (state.st_ino, state.st_mtime_ns))


@functools.lru_cache(maxsize=32)  # a command reads a checkpoint several times
def _damage(path: Path, size: int, _: tuple[int, int]) -> str | None:
    with path.open("rb") as file:
        file.seek(max(0, size - _SEAL_BYTES))
        found = file.read()
        if found.startswith(_SEAL):
            file.seek(0)
            is_whole = found == _SEAL + f"{_checksum(file, size - _SEAL_BYTES):08x}".encode()
            return None if is_whole else "its checksum is another"
        try:
            with zipfile.ZipFile(file) as archive:
                is_cut = not found.endswith(b"\0\0")  # the length of a comment that is not there
                if is_cut or archive.comment or archive.testzip():
                    return "it is cut off or changed"
        except Exception:  # as above: of any kind
            return "it is cut off, or not a checkpoint"
    return None


def _checksum(file: Any, size: int) -> int:
    checksum = 0
    while size > 0:
        chunk = file.read(min(size, _CHUNK))
        if not chunk:
            break
        checksum = zlib.crc32(chunk, checksum)
        size -= len(chunk)
    return checksum


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
    reason = damage(path)
    try:
        content = {} if reason else torch.load(path, "cpu", weights_only=True, mmap=True)
    except Exception as error:  # what is no tensor or plain type ends in errors of any kind
        text = str(error).strip() or type(error).__name__
        reason = text.splitlines()[0].split(". ")[0][:120]
    if reason:
        raise CheckpointError(
            f"ckpt_path: expected a checkpoint of bert_lightning – {path} cannot be read:"
            f" {reason}\nthe file is damaged or not a checkpoint; {_intact_beside(path)}"
        )
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
    faults = _faults(content, {"state_dict": dict}) or _faults_of_weights(content["state_dict"])
    _expect_no_faults(path, [*faults, *_faults(stored, _ENTRIES)])
    return dict(content)


def read_run(path: Path) -> dict[str, Any]:
    """Return the entry ``bert_lightning`` of a checkpoint that a run wrote, with its settings.

    Raises:
        CheckpointError: As `read_checkpoint`, or it has no settings.
    """
    stored: dict[str, Any] = read_checkpoint(path)["bert_lightning"]
    settings = _faults(stored.get("settings"), _SETTINGS, "settings.")
    _expect_no_faults(path, [*settings, *_faults(stored.get("data"), _DATA, "data.")])
    return stored


def expect_state(path: Path) -> None:
    """Refuse a checkpoint without what a run needs to go on, such as one of weights alone.

    Raises:
        CheckpointError: As `read_checkpoint`, or of what is missing.
    """
    content = read_checkpoint(path)
    faults = _faults(content, _STATE)
    faults += [key for key in ("epoch", "global_step") if key not in faults and content[key] < 0]
    _expect_no_faults(path, faults)


def _expect_no_faults(path: Path, faults: list[str]) -> None:
    if faults:
        raise CheckpointError(
            f"ckpt_path: expected a whole checkpoint of bert_lightning – in {path} these are"
            f" missing or of another kind: {', '.join(faults)}\ntake one that this program wrote"
        )


def _faults(found: Any, kinds: dict[str, type], prefix: str = "") -> list[str]:
    """Return the names of entries that are missing or of another kind."""
    entries = found if isinstance(found, dict) else {}
    return [
        f"{prefix}{key}" for key, kind in kinds.items() if not isinstance(entries.get(key), kind)
    ]


def _faults_of_weights(weights: dict[Any, Any]) -> list[str]:
    return [
        f"state_dict.{name}"
        for name, weight in weights.items()
        if not (isinstance(name, str) and isinstance(weight, torch.Tensor))
    ][:1]


def _intact_beside(damaged: Path) -> str:
    """Say which checkpoints of the same folder can be taken instead."""
    intact = sorted(map(str, intact_checkpoints(damaged.parent)))
    return f"intact beside it: {', '.join(intact)}" if intact else "none beside it is intact"


def intact_checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints of a folder that can be read, the newest state first."""
    steps = {}
    for path in folder.glob("*.ckpt"):
        if path.is_file() and not damage(path):  # FSDP and DeepSpeed can write folders
            with contextlib.suppress(Exception):  # as in read_checkpoint
                content = torch.load(path, "meta", weights_only=True, mmap=True)
                steps[path] = (content.get("global_step", 0), path.name == LAST)
    return sorted(steps, key=lambda path: steps[path], reverse=True)


def stand_in(last: Path) -> tuple[Path, str]:
    """Return the newest intact state, where ``last`` is damaged, and what to say of it.

    Returns:
        ``last`` itself and nothing to say if it is intact, or none can stand in for it.
    """
    reason = damage(last)
    others = intact_checkpoints(last.parent) if reason else []
    if not others:
        return last, ""
    return others[0], f"{last} is damaged, {reason}: from {others[0].name} instead"


def replace_damaged(last: Path) -> str:
    """Put the newest intact state in the place of a damaged ``last``, which is kept beside it.

    Returns:
        What to say of it; empty if ``last`` is intact, or none can take its place.
    """
    intact, note = stand_in(last)
    if note:
        copy_at_once(last, last.with_suffix(".damaged"))  # a kill finds a last at any moment
        copy_at_once(intact, last)
    return note


def copy_at_once(source: Path, target: Path) -> None:
    """Make target the same file as source at one stroke; a second link costs no writing.

    A folder, as FSDP and DeepSpeed can write it, is copied: they write into its files anew.
    """
    beside = target.with_suffix(".tmp")
    _remove(beside)
    try:
        if source.is_dir():
            shutil.copytree(source, beside)
        else:
            _link(source, beside)
        if source.is_dir() or target.is_dir():  # no folder is replaced at one stroke
            _remove(target)
        beside.replace(target)
    finally:
        _remove(beside)  # after an error, or where target was the same file, which changes nothing


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # a file system without links
        shutil.copyfile(source, target)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


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
    if path.is_dir() and path.name == CHECKPOINTS:
        path = path.parent  # of the run
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
        _expect_no_later_seed(path)
        raise CheckpointError(
            f"ckpt_path: expected a checkpoint file – found nothing at {path.absolute()}\n"
            "give a .ckpt file, a run folder, best or last"
        )
    return path


def unsaved_runs(checkpoint: Path, root: Path) -> list[Path]:
    """Return the folders of newer fits, which have no such checkpoint.

    Args:
        checkpoint: What ``best`` or ``last`` was found to be.
        root: Folder that holds ``runs/``.
    """
    runs = [root / RUNS / str(number) for number in run_numbers(root)]
    found = [number for number, run in enumerate(runs) if checkpoint.is_relative_to(run)]
    newer = runs[found[0] + 1 :] if found else []
    return [run for run in newer if _is_of_fit(run)]


def _is_of_fit(run: Path) -> bool:
    config = run / "config.yaml"  # a fit that was killed while it read its data has none yet
    return not config.is_file() or "\ntest_after_fit:" in config.read_text(encoding="utf-8")


def _expect_no_later_seed(path: Path) -> None:
    begun = [folder.name for folder in seed_folders(path.parent)]
    if begun and (name := path.name).startswith("seed_"):
        raise CheckpointError(
            f"ckpt_path: expected a seed that has begun – found {path}, which has not; of"
            f" {path.parent} {', '.join(begun)} have\ntrain it with fit --seeds"
            f" [{name.removeprefix('seed_')}]"
        )


def _expect_no_seeds(run: Path, name: str) -> None:
    """Refuse a run of several seeds: which of them is meant is for the user to say."""
    folders = [path for path in seed_folders(run) if (path / CHECKPOINTS / f"{name}.ckpt").exists()]
    if folders:
        names = ", ".join(map(str, folders))
        raise CheckpointError(
            f"ckpt_path: expected one run – found {run}, a run of several seeds,"
            f" {len(folders)} with a {name} checkpoint\n"
            + (f"give one of {names}" if folders[1:] else f"give {names}")
        )


def way_on(run: Path, processes: int = 1) -> str:
    """Return the words for what to do with a run that has ended early.

    Args:
        run: Its folder.
        processes: Those that trained: no checkpoint holds strategy and devices.
    """
    last = run / CHECKPOINTS / LAST
    if not last.exists():
        return "no checkpoint was written yet: begin again"
    return f"the last checkpoint is {last}: {going_on(run, processes)}"


def going_on(run: Path, processes: int = 1) -> str:
    """Return the words for how to go on with a run; arguments are those of `way_on`."""
    again = " and the same strategy and devices" if processes > 1 else ""
    return f"go on with fit --ckpt_path {run}{again}"


def spoilt(checkpoint: Mapping[str, Any]) -> str:
    """Name the first tensor of a checkpoint that does not hold numbers alone; empty if all do.

    Args:
        checkpoint: With ``state_dict`` and, where a run goes on from it, ``optimizer_states``.
    """
    sums = {
        f"{name} of weight {number:,} in the optimizer": value
        for states in checkpoint.get("optimizer_states", ())
        for number, state in enumerate(states.get("state", {}).values(), start=1)
        for name, value in state.items()
    }
    for name, value in {**checkpoint["state_dict"], **sums}.items():
        if torch.is_tensor(value) and not value.isfinite().all():
            return str(name).removeprefix("network.")
    return ""


def expect_numbers(path: Path, content: Mapping[str, Any]) -> None:
    """Refuse a checkpoint whose weights, or sums of the optimizer, are spoilt.

    Args:
        path: Where it was read.
        content: As `spoilt` takes it.

    Raises:
        CheckpointError: A tensor holds infinity or what is no number.
    """
    if name := spoilt(content):
        raise CheckpointError(
            f"ckpt_path: expected numbers in {path} – found others in {name}\ntake an earlier"
            " one of the run, such as its best.ckpt, with a lower --model.learning_rate"
        )
