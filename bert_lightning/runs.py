"""Numbered run folders: ``runs/<number>/`` under ``trainer.default_root_dir``."""

from __future__ import annotations

from pathlib import Path

from bert_lightning.errors import ConfigError

RUNS = "runs"


def run_numbers(root: Path) -> list[int]:
    """Return the numbers of all runs under a root folder, ascending."""
    folder = root / RUNS
    if not folder.is_dir():
        return []
    return sorted(
        int(run.name) for run in folder.iterdir() if run.name.isdecimal() and run.is_dir()
    )


def new_run_folder(root: Path) -> Path:
    """Make and return the next run folder; safe when several commands start at the same moment."""
    number = max(run_numbers(root), default=0)
    while True:
        number += 1
        folder = root / RUNS / str(number)
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise ConfigError(
                f"trainer.default_root_dir: expected a folder that can be written – found"
                f" {error.strerror} at {folder.absolute()}"
            ) from error
        return folder


def run_of_checkpoint(checkpoint: Path) -> Path | None:
    """Return the run folder that a checkpoint belongs to, or None if it lies elsewhere."""
    run = checkpoint.absolute().parent.parent
    if run.parent.name != RUNS or not run.name.isdigit():
        return None
    return run.relative_to(Path.cwd()) if run.is_relative_to(Path.cwd()) else run


def discard_if_empty(run: str | None) -> None:
    """Remove the folder of a run that ended before it wrote anything."""
    if run and Path(run).is_dir() and not any(Path(run).iterdir()):
        Path(run).rmdir()
        if not any(Path(run).parent.iterdir()):
            Path(run).parent.rmdir()
