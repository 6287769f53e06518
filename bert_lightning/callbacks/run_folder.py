"""The folder of a run: its number, config.yaml, dropped rows, and the settings in checkpoints."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import yaml
from lightning.pytorch import Callback, LightningModule, Trainer
from typing_extensions import override

from bert_lightning.arguments import FIT_KEYS
from bert_lightning.plugins import MACHINE_KEYS, precision_entries
from bert_lightning.precision import computed_precision
from bert_lightning.runs import take_back_run
from bert_lightning.spreadsheets import as_cell

DROPPED_ROWS = "dropped_rows.csv"


class RunFolder(Callback):
    """Writes config.yaml when a run starts and puts the settings into every checkpoint.

    Rows of the data that were left out are listed in dropped_rows.csv, which opens in a
    spreadsheet.

    Args:
        path: ``runs/<number>``, picked by the first process; the others learn it in ``setup``.
        config_yaml: The merged configuration as text.
        settings: The same as plain types.
    """

    def __init__(self, path: Path, config_yaml: str, settings: dict[str, Any]) -> None:
        self.path = path
        self.config_yaml = config_yaml
        self.settings = settings
        self._has_begun = False
        self._config: Path | None = None  # written by this command

    @property
    def checkpoints(self) -> Path:
        """Folder of the run's checkpoints."""
        return self.path / "checkpoints"

    @property
    def report(self) -> Path:
        """Folder of the run's report."""
        return self.path / "report"

    def change(self, group: str, **values: Any) -> None:
        """Put what was found before the run began in place of the settings of a group."""
        self.settings[group].update(values)
        self.config_yaml = yaml.safe_dump(self.settings, sort_keys=False, allow_unicode=True)

    @override
    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self.path = Path(trainer.strategy.broadcast(str(self.path)))
        if trainer.is_global_zero and not list(self.path.glob("config*.yaml")):
            self.path.mkdir(parents=True, exist_ok=True)
            self._write_config("config.yaml")
        elif trainer.is_global_zero and not self._is_saved():
            number = len(list(self.path.glob("config*.yaml")))
            self._write_config(f"config_resumed_{number}.yaml")
        if trainer.is_global_zero and stage == "fit":
            self._list_dropped(trainer.datamodule.news.dropped)  # type: ignore[attr-defined]

    @override
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._has_begun = True

    @override
    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._has_begun = self._has_begun or not trainer.sanity_checking

    @override
    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._has_begun = True

    @override
    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        """Take back what was written for a run that has not begun."""
        if trainer.is_global_zero and not self._has_begun:
            take_back_run(self.path)
            if self._config:
                self._config.unlink(missing_ok=True)

    def _write_config(self, name: str) -> None:
        self._config = self.path / name
        self._config.write_text(self.config_yaml, encoding="utf-8")

    def _list_dropped(self, faults: list[Any]) -> None:
        if not faults:
            return
        # a byte order mark, without which Excel takes Chinese for Latin
        with (self.path / DROPPED_ROWS).open("w", encoding="utf-8-sig", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["file", "line", "expected", "found"])
            writer.writerows(
                [as_cell(fault.source), fault.line, as_cell(fault.expected), as_cell(fault.found)]
                for fault in faults
            )

    def _is_saved(self) -> bool:
        return any(
            file.read_text(encoding="utf-8") == self.config_yaml
            for file in self.path.glob("config*.yaml")
        )

    @override
    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        trainer_settings = {
            key: value for key, value in self.settings["trainer"].items() if key not in MACHINE_KEYS
        }
        if plugins := precision_entries(self.settings["trainer"]["plugins"]):
            trainer_settings["plugins"] = plugins
        stored = checkpoint.setdefault("bert_lightning", {})
        stored["settings"] = {
            "seed_everything": self.settings["seed_everything"],
            "trainer": trainer_settings,
            "model": self.settings["model"],
            "amp": self.settings["amp"],
            "matmul": self.settings["matmul"],
            **{key: self.settings[key] for key in FIT_KEYS},
            "data": {**self.settings["data"], "path": data.path, "predict_path": None},
        }
        on_cpu = trainer.strategy.root_device.type == "cpu"
        stored["precision"] = computed_precision(trainer.precision, on_cpu)
        stored["data"] = {
            "fingerprint": data.news.fingerprint,
            "holdout_ratio": data.holdout_ratio,
            "seed": data.seed,
        }
