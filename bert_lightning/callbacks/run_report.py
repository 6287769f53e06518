"""Results of a run → report/report.json and report/report.md."""

from __future__ import annotations

import csv
import json
import platform
import time
from pathlib import Path
from typing import Any

import lightning
import torch
import transformers
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping
from typing_extensions import override

from bert_lightning.callbacks.amp_recorder import AmpRecorder
from bert_lightning.callbacks.run_folder import RunFolder
from bert_lightning.callbacks.throughput import Throughput
from bert_lightning.console import Console
from bert_lightning.metrics import SCORES
from bert_lightning.planning import run_steps
from bert_lightning.precision import computed_precision
from bert_lightning.replacing import replacing
from bert_lightning.spreadsheets import as_cell

_SIGNAL = " Signaling Trainer to stop."  # at the end of Lightning's reasons


class RunReport(Callback):
    """Writes what was run, on what, how fast and how well.

    ``report.json`` holds every number, ``report.md`` is for reading, ``confusion_<split>.csv``
    opens in a spreadsheet. Lines on the terminal say the scores and where the files are.

    Args:
        run: Where the run writes.
        throughput: Rows and seconds of each epoch.
        banner: The lines shown at the start; they say what ``auto`` took.
        trained_in: Precision that the weights which are scored were trained in; a fit's is its own.
        console: Where lines go.

    Attributes:
        lacks_test: Whether a fit had nothing left to train, and the run was not tested either.
    """

    def __init__(
        self,
        run: RunFolder,
        throughput: Throughput,
        banner: dict[str, str],
        trained_in: str,
        console: Console,
    ) -> None:
        self.run = run
        self.throughput = throughput
        self.banner = banner
        self.trained_in = trained_in
        self.console = console
        self.history: list[dict[str, Any]] = []
        self.lacks_test = False
        self._started = time.monotonic()

    @override
    def state_dict(self) -> dict[str, Any]:
        return {"history": self.history}

    @override
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        # the test after a fit brings back the state of the best checkpoint, which is older
        if len(state_dict["history"]) > len(self.history):
            self.history = [dict(row) for row in state_dict["history"]]

    @property
    def has_trained(self) -> bool:
        """Whether this fit had anything left to train."""
        return bool(self.throughput.seconds)

    @override
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.trained_in = _precision(trainer)
        self.banner["steps"] = run_steps(trainer)
        self.console.say(f"{'steps':<9} {self.banner['steps']}")

    @override
    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not self.has_trained:
            self.lacks_test = trainer.strategy.broadcast(
                "test" not in self._kept().get("results", ())
            )
            self.console.say(f"nothing left to train: {_why_over(trainer)}")
            return
        for callback in trainer.callbacks if trainer.should_stop else ():  # type: ignore[attr-defined]
            if isinstance(callback, EarlyStopping) and callback.stopping_reason_message:
                reason = callback.stopping_reason_message.removesuffix(_SIGNAL)
                epoch = f"epoch {callback.stopped_epoch + 1} of {trainer.max_epochs}"
                self.console.say(f"{'stopped':<9} in {epoch} by EarlyStopping: {reason}")
        self._write(trainer, pl_module, "fit")

    @override
    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn == "validate":
            self._write(trainer, pl_module, "validate")
            self._say_scores(pl_module, "val")
        elif not trainer.sanity_checking:
            scores = {name: pl_module.results["val"][name] for name in SCORES}  # type: ignore[index]
            row = {"epoch": trainer.current_epoch + 1, "step": trainer.global_step, **scores}
            self.history.append(row)

    @override
    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._write(trainer, pl_module, "test")
        self._say_scores(pl_module, "test")

    def _say_scores(self, pl_module: LightningModule, split: str) -> None:
        result = pl_module.results[split]  # type: ignore[index]
        self.console.say(
            f"{split:<5} {result['rows']:,} rows · "  # type: ignore[index]
            + " · ".join(f"{split}/{name} {result[name]:.4f}" for name in SCORES)  # type: ignore[index]
        )
        self.say_where()

    def say_where(self) -> None:
        """Say where the report is."""
        self.console.say(f"{'out':<5} {self.run.report / 'report.md'}")

    def _write(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if not trainer.is_global_zero or trainer.fast_dev_run:  # type: ignore[attr-defined]
            return
        folder = self.run.report
        folder.mkdir(exist_ok=True)
        content = self._content(trainer, pl_module, stage)
        if kept := {} if self.has_trained else self._kept():  # a test that was cut off
            both = {name: {**kept[name], **content[name]} for name in ("truncated_rows", "results")}
            content = {**kept, "stage": stage, **both}
        _replace(folder / "report.json", json.dumps(content, ensure_ascii=False, indent=1) + "\n")
        _replace(folder / "report.md", as_markdown(content))
        for split, result in content["results"].items():
            _write_confusion(folder / f"confusion_{split}.csv", content["classes"], result)

    def _kept(self) -> dict[str, Any]:
        """Return the report that the folder holds already."""
        path = self.run.report / "report.json"
        if not path.is_file():
            return {}
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return content

    def _content(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> dict[str, Any]:
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        device = trainer.strategy.root_device  # after a fit the weights lie on the CPU
        peak = torch.cuda.max_memory_allocated(device) / 2**30 if device.type == "cuda" else None
        return {
            "banner": self.banner,
            "stage": stage,
            "classes": pl_module.class_names,
            "rows": data.splits,
            "truncated_rows": {
                split: rows.truncated for split in data.splits if (rows := data.rows(split))
            },
            "dropped_rows": len(data.news.dropped),
            "notes": data.news.notes,
            "devices": trainer.world_size,
            "precision": {"trained": self.trained_in, "scored": _precision(trainer)},
            "steps": trainer.global_step,
            "amp": next(
                (c.summary() for c in trainer.callbacks if isinstance(c, AmpRecorder)),  # type: ignore[attr-defined]
                None,
            ),
            "execution": pl_module.execution_summary(),  # type: ignore[operator]
            "seconds": round(time.monotonic() - self._started, 1),
            "epoch_seconds": self.throughput.seconds,
            "samples_per_second": self.throughput.samples_per_second,
            "peak_memory_gib": peak,
            "history": self.history,
            "results": pl_module.results,
            "versions": {
                "python": platform.python_version(),
                "torch": torch.__version__,
                "lightning": lightning.__version__,
                "transformers": transformers.__version__,
            },
            "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        }


def _why_over(trainer: Trainer) -> str:
    """Return why a run that was gone on with has nothing left to train."""
    key, done = "max_epochs", f"epoch {trainer.current_epoch}"
    if 0 <= trainer.max_steps <= trainer.global_step:
        key, done = "max_steps", f"step {trainer.global_step:,}"
    elif trainer.should_stop:
        progress: Any = trainer.fit_loop.epoch_progress
        return (
            f"the run was ended in epoch {progress.current.processed} by EarlyStopping or"
            " trainer.max_time; to train on, give it more patience or time"
        )
    limit = f"trainer.{key} {getattr(trainer, key)}"
    return f"the run is at {done} of {limit}; to train on, raise --trainer.{key}"


def as_markdown(content: dict[str, Any]) -> str:
    """Return the report as Markdown."""
    lines = ["# Run report", ""]
    lines += [f"- **{name}**: {text}" for name, text in content["banner"].items()]
    lines += [f"- **note**: {note}" for note in content["notes"]]
    cut = ", ".join(f"{split} {count:,}" for split, count in content["truncated_rows"].items())
    lines += [f"- **rows cut at max_length**: {cut}"] if cut else []
    if content["samples_per_second"]:
        speeds = ", ".join(f"{speed:,.0f}" for speed in content["samples_per_second"])
        lines.append(f"- **training**: {content['steps']:,} steps; samples/s an epoch: {speeds}")
    if content["amp"]:
        amp = content["amp"]
        lines.append(
            f"- **loss scaling**: {amp['skipped']:,} of {amp['steps']:,} steps skipped;"
            f" loss scale at the end {amp['loss_scale'] or 0:g}"
        )
    if captured := content["execution"]["captured"]:
        lines.append(
            f"- **captured**: {captured['graphs']} graphs for {len(captured['shapes'])} shapes of"
            f" batch, recorded in {captured['seconds']} s;"
            f" {content['execution']['compiled_parts']} parts compiled"
        )
    if content["peak_memory_gib"] is not None:
        lines.append(f"- **peak memory**: {content['peak_memory_gib']:.2f} GiB")
    if content["history"]:
        lines += ["", "## Validation", "", "| epoch | loss | accuracy | macro-F1 |"]
        lines += ["|---|---|---|---|"]
        lines += [
            f"| {row['epoch']} | " + " | ".join(f"{row[name]:.4f}" for name in SCORES) + " |"
            for row in content["history"]
        ]
    for split, result in content["results"].items():
        lines += ["", f"## {split}: {result['rows']:,} rows", ""]
        trained, scored = content["precision"]["trained"], content["precision"]["scored"]
        lines.append((f"- trained in {trained}, " if trained else "- ") + f"scored in {scored}")
        lines += [f"- {name}: {result[name]:.4f}" for name in SCORES]
        lines += ["", "| class | precision | recall | F1 | rows |", "|---|---|---|---|---|"]
        columns = (result[name] for name in ("precision", "recall", "f1", "support"))
        lines += [
            f"| {name} | {precision:.4f} | {recall:.4f} | {f1:.4f} | {rows:,} |"
            for name, precision, recall, f1, rows in zip(content["classes"], *columns, strict=True)
        ]
    versions = ", ".join(f"{name} {version}" for name, version in content["versions"].items())
    lines += ["", f"{content['device']} · {content['seconds']:.0f} s · {versions}", ""]
    return "\n".join(lines)


def _precision(trainer: Trainer) -> str:
    return computed_precision(trainer.precision, trainer.strategy.root_device.type == "cpu")


def _write_confusion(path: Path, classes: list[str], result: dict[str, Any]) -> None:
    with path.open("w", encoding="utf-8-sig", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["true \\ predicted", *map(as_cell, classes)])
        for name, row in zip(classes, result["confusion"], strict=True):
            writer.writerow([as_cell(name), *row])


def _replace(path: Path, text: str) -> None:
    with replacing(path, encoding="utf-8") as stream:
        stream.write(text)
