"""Numbered run folders: ``runs/<number>/`` under ``trainer.default_root_dir``.

A run of several seeds holds one folder a seed, ``runs/<number>/seed_<seed>/``, each a complete run.
"""

from __future__ import annotations

import errno
import fcntl
import os
import platform
import re
import shutil
from pathlib import Path
from typing import IO

from bert_lightning.errors import ConfigError

RUNS = "runs"
UNDECIDED = "undecided"
FOLDER_VARIABLE = "BERT_LIGHTNING_RUN_FOLDER"  # where the process of a seed is told to write
_JOB = "slurm_job"
_SEED = re.compile(r"seed_\d+")
_LOCK = ".lock"
_held: dict[Path, IO[str]] = {}  # closing the file would give the lock away
_made_here: set[Path] = set()  # folders that this very command has made


def run_numbers(root: Path) -> list[int]:
    """Return the numbers of all runs under a root folder, ascending."""
    folder = root / RUNS
    if not folder.is_dir():
        return []
    return sorted(
        int(run.name) for run in folder.iterdir() if run.name.isdecimal() and run.is_dir()
    )


def new_run_folder(root: Path) -> Path:
    """Make and return the next run folder; safe when several commands start at the same moment.

    The process of a seed takes the folder that it was told.
    """
    if told := os.environ.get(FOLDER_VARIABLE):
        return _made(_from_here(Path(told)), exist_ok=True)
    number = max(run_numbers(root), default=0)
    while True:
        number += 1
        folder = root / RUNS / str(number)
        try:
            return _made(folder, exist_ok=False)
        except FileExistsError:
            continue


def hold_run(folder: Path) -> Path:
    """Keep all other processes from training in the folder of a run, and return the folder.

    The system gives the lock away when this process ends, however it does; its workers never hold
    it. Where a file system knows no locks, nothing is kept away.

    Raises:
        ConfigError: Another process trains there, or it cannot be written.
    """
    path = (folder / _LOCK).absolute()
    if path in _held:
        return folder
    try:
        file = path.open("a+", encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"ckpt_path: expected a run folder that can be written – found {error.strerror} at"
            f" {folder.absolute()}\nmake it writable, or copy the checkpoint elsewhere: fit"
            " --ckpt_path COPY begins a run of its own with it"
        ) from error
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.seek(0)
        holder = file.read() or "another process"
        file.close()
        if error.errno not in (errno.EACCES, errno.EAGAIN):
            return folder
        raise ConfigError(
            f"ckpt_path: expected a run that has ended – found {folder} in use by {holder}\n"
            "wait for its end, or stop it: SIGTERM saves within a step"
        ) from error
    file.truncate(0)
    file.write(f"process {os.getpid()} of {platform.node()}")
    file.flush()
    _held[path] = file
    return folder


def release_runs() -> None:
    """Let other processes train in the folders that this one has held, and forget them."""
    while _held:
        _held.popitem()[1].close()
    _made_here.clear()


def _made(folder: Path, exist_ok: bool) -> Path:
    is_new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=exist_ok)
    except FileExistsError:
        raise
    except OSError as error:
        raise ConfigError(
            f"trainer.default_root_dir: expected a folder that can be written – found"
            f" {error.strerror} at {folder.absolute()}"
        ) from error
    if is_new:
        _made_here.add(folder.absolute())
    return folder


def seed_folder(run: Path, seed: int) -> Path:
    """Return the folder of one seed in the folder of a run of several."""
    return run / f"seed_{seed}"


def seed_folders(run: Path) -> list[Path]:
    """Return the folders of all seeds in the folder of a run, in the order of the seeds."""
    folders = [folder for folder in run.glob("seed_*") if _SEED.fullmatch(folder.name)]
    return sorted(folders, key=lambda folder: int(folder.name.removeprefix("seed_")))


def run_of_checkpoint(checkpoint: Path) -> Path | None:
    """Return the run folder that a checkpoint belongs to, or None if it lies elsewhere."""
    run = checkpoint.absolute().parent.parent
    numbered = run.parent if _SEED.fullmatch(run.name) else run
    if numbered.parent.name != RUNS or not numbered.name.isdigit():
        return None
    return _from_here(run)


def remember_job(run: str, job: str) -> None:
    """Note which job of a queue a run belongs to, so that it finds its run when it starts again."""
    (Path(run) / _JOB).write_text(job, encoding="utf-8")


def run_of_job(root: Path, job: str) -> Path | None:
    """Return the newest run that a job was put back into the queue with, or None."""
    for number in reversed(run_numbers(root)):
        note = root / RUNS / str(number) / _JOB
        if note.is_file() and note.read_text(encoding="utf-8") == job:
            return note.parent
    return None


def _from_here(folder: Path) -> Path:
    return folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder


def take_back_run(run: Path) -> None:
    """Remove what was written for a run but the lock on it, if this very command made its folder.

    A folder that was there before is left as it is, whatever it holds or lacks.
    """
    for path in run.iterdir() if run.absolute() in _made_here else ():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != _LOCK:
            path.unlink()


def discard_if_empty(run: str | None) -> None:
    """Remove the folder of a run that ended before it wrote anything."""
    if run and Path(run).is_dir() and {file.name for file in Path(run).iterdir()} <= {_LOCK}:
        (Path(run) / _LOCK).unlink(missing_ok=True)
        Path(run).rmdir()
        runs = Path(run).parent
        if runs.name == RUNS and not any(runs.iterdir()):
            runs.rmdir()
