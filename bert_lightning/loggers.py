"""Logged values → ``metrics.csv``, which a resumed run continues instead of replacing."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger
from lightning.pytorch.utilities import rank_zero_only
from typing_extensions import override

from bert_lightning.errors import ConfigError
from bert_lightning.replacing import replacing

_FIRST_COLUMNS = ("epoch", "step")


def refuse_overwriting(loggers: Sequence[Logger]) -> None:
    """Refuse a CSV logger of Lightning's in a folder whose metrics.csv it would delete.

    Raises:
        ConfigError: The folder holds the history of an earlier run.
    """
    if getattr(rank_zero_only, "rank", 0):  # the first process has made the file by now
        return
    for logger in loggers:
        if isinstance(logger, CSVLogger) and (Path(logger.log_dir) / "metrics.csv").is_file():
            raise ConfigError(
                "trainer.logger: expected a folder without metrics.csv, which a CSVLogger deletes –"
                f" found {Path(logger.log_dir).absolute() / 'metrics.csv'}\n"
                "remove its version, or the logger: every run has a metrics.csv of its own"
            )


class MetricsCSV(Logger):
    """Writes one row a logging step, flushed at once; what a step did not log is an empty cell.

    Lightning's own CSV logger deletes the file of an earlier run in the same folder, so a resumed
    run would lose its history.

    Args:
        folder: Folder of the run.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self._columns: list[str] = []

    @property
    def file(self) -> Path:
        """The file that is written."""
        return self.folder / "metrics.csv"

    @property
    @override
    def name(self) -> str:
        return ""  # Lightning joins folder, name and version to a place for files of callbacks

    @property
    @override
    def version(self) -> str:
        return ""

    @property
    @override
    def save_dir(self) -> str:
        return str(self.folder)

    @override
    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        pass  # config.yaml of the run holds them

    @override
    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        row = {**metrics, "step": step}
        if not self._columns and self.file.is_file():
            with self.file.open(encoding="utf-8", newline="") as stream:
                self._columns = next(csv.reader(stream), [])
        new = [name for name in (*_FIRST_COLUMNS, *row) if name not in self._columns]
        if new:
            self._widen(list(dict.fromkeys(new)))
        with self.file.open("a", encoding="utf-8", newline="") as stream:
            csv.DictWriter(stream, self._columns).writerow(row)

    def _widen(self, new: list[str]) -> None:
        """Add columns by writing the file anew beside the old one and putting it in its place."""
        rows: list[dict[str, str]] = []
        if self.file.is_file():
            with self.file.open(encoding="utf-8", newline="") as stream:
                rows = list(csv.DictReader(stream))
        self._columns += new
        with replacing(self.file, encoding="utf-8", newline="") as stream:
            writer = csv.DictWriter(stream, self._columns)
            writer.writeheader()
            writer.writerows(rows)


def run_loggers(asked: Any, folder: Path) -> list[Logger] | bool:
    """Return the loggers of a run: CSV, TensorBoard, and the user's own after them.

    Args:
        asked: ``trainer.logger``; False stays False.
        folder: Folder of the run.
    """
    if asked is False:
        return False
    tensorboard = TensorBoardLogger(folder, name="", version="tensorboard")
    own = [] if asked in (None, True) else (asked if isinstance(asked, list) else [asked])
    return [MetricsCSV(folder), tensorboard, *own]
