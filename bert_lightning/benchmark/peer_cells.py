"""What is compared with what: groups of cells, each a command line of its own.

The first cell of a group is the one that the others are compared with. Options of a peer are those
of `peer_loops`, options of the project those of `python -m bert_lightning`.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from bert_lightning.benchmark.stopwatch import Extent, PredictionTimer, StepTimer

MAX_LENGTH = 128
EPOCHS = 50  # more than are ever run: the timer ends the fit


@dataclass(frozen=True)
class Cell:
    """One program in one setting.

    Args:
        name: What it is called on the command line and in the tables.
        program: ``fit`` or ``predict`` of this project, or a peer of `peer_loops`.
        options: Added to its command line.
    """

    name: str
    program: str
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Group:
    """Cells that are compared, over the same rows.

    Args:
        name: What it is called on the command line.
        title: Heading of its table.
        data: What the rows are: made-up headlines, made-up long texts, or those of --data.path.
        batch_size: Rows a batch.
        cells: The first one is what the others are compared with.
        warmup: Steps that are not measured: enough to meet every width of a batch.
    """

    name: str
    title: str
    data: Literal["headlines", "long", "titles"]
    batch_size: int
    cells: tuple[Cell, ...]
    warmup: int = 150

    @property
    def predicts(self) -> bool:
        """Whether texts are predicted, from a file to a file, instead of training."""
        return any(cell.program == "predict" for cell in self.cells)


TRAINER = Cell("trainer-fp16", "trainer", ("--half",))
OURS_32 = Cell("ours-32", "fit", ("--trainer.precision", "32"))
OURS_16 = Cell("ours-16-mixed", "fit", ("--trainer.precision", "16-mixed"))
GROUPS = (
    Group(
        "headlines-32",
        "Training, batch 32, headlines",
        "headlines",
        32,
        (
            TRAINER,
            Cell("trainer-compiled-fp16", "trainer", ("--half", "--compile", "--multiple", "8")),
            Cell("lightning-16-mixed", "lightning", ("--half",)),
            Cell("loop-fp16", "loop", ("--half",)),
            OURS_16,
            Cell("ours-bf16-mixed", "fit", ("--trainer.precision", "bf16-mixed")),
            Cell("ours-tf32", "fit", (*OURS_32.options, "--matmul.tf32", "true")),
            OURS_32,
            Cell("ours-eager-16-mixed", "fit", (*OURS_16.options, "--model.execution", "eager")),
        ),
    ),
    Group("headlines-256", "Training, batch 256, headlines", "headlines", 256, (TRAINER, OURS_16)),
    Group(
        "length-128-256",
        "Training, batch 256, length 128",
        "long",
        256,
        (TRAINER, OURS_16, OURS_32),
        warmup=30,
    ),
    Group("titles-32", "Training, batch 32, real titles", "titles", 32, (TRAINER, OURS_16)),
    Group(
        "memory-32",
        "Memory, batch 32, length 128",
        "long",
        32,
        (
            OURS_32,
            OURS_16,
            Cell("ours-16-mixed-lowmem", "fit", (*OURS_16.options, "--config", "lowmem.yaml")),
        ),
        warmup=50,
    ),
    Group(
        "prediction-256",
        "Prediction, batch 256, headlines, from a file to a file",
        "headlines",
        256,
        (
            Cell("pipeline-fp16", "pipeline", ("--half",)),
            Cell("ours-16-mixed", "predict", ("--trainer.precision", "16-mixed")),
        ),
    ),
)


@dataclass(frozen=True)
class Place:
    """Where a cell finds what it needs, and writes.

    Args:
        model: Folder of the model.
        data: What ``data.path`` is.
        rows: The same rows tokenised, for the peers.
        texts: Texts to predict, one a line.
        cache: What ``data.cache_dir`` is.
        checkpoint: Of the project, to predict with.
        runs: Folder for what a run leaves.
        output: JSON file for what is measured.
    """

    model: Path
    data: Path
    rows: Path
    texts: Path
    cache: Path
    checkpoint: Path
    runs: Path
    output: Path


def command(cell: Cell, group: Group, place: Place, extent: Extent, started: float) -> list[str]:
    """Return the command line of a cell.

    Args:
        cell: The cell.
        group: Its group.
        place: Where things are.
        extent: How much is measured.
        started: time.time() of now.
    """
    if cell.program == "fit":
        timer = {"started": started, "output": str(place.output), **asdict(extent)}
        return fit_command(
            group,
            place,
            *("--trainer.callbacks", json.dumps([entry(StepTimer, timer)])),
            *("--trainer.max_epochs", str(EPOCHS), "--trainer.enable_checkpointing", "false"),
            *cell.options,
        )
    if cell.program == "predict":
        return [
            *own_command("predict"),
            *("--ckpt_path", str(place.checkpoint), "--data.predict_path", str(place.texts)),
            *("--output", str(place.output.with_suffix(".jsonl"))),
            *("--data.batch_size", str(group.batch_size)),
            *(
                "--trainer.profiler",
                json.dumps(entry(PredictionTimer, {"output": str(place.output)})),
            ),
            *("--trainer.enable_progress_bar", "false"),
            *cell.options,
        ]
    return [
        *(sys.executable, "-m", "bert_lightning.benchmark.peer_loops", cell.program),
        *("--model", str(place.model), "--rows", str(place.rows), "--texts", str(place.texts)),
        *("--batch_size", str(group.batch_size), "--extent", json.dumps(asdict(extent))),
        *("--started", str(started), "--output", str(place.output)),
        *cell.options,
    ]


def fit_command(group: Group, place: Place, *options: str) -> list[str]:
    """Return the command line of a fit over the data of a group, without validation and test."""
    return [
        *own_command("fit"),
        *("--data.path", str(place.data), "--data.cache_dir", str(place.cache)),
        *("--data.batch_size", str(group.batch_size), "--data.max_length", str(MAX_LENGTH)),
        *("--model.pretrained", str(place.model), "--trainer.default_root_dir", str(place.runs)),
        *("--trainer.limit_val_batches", "0", "--test_after_fit", "false"),
        *("--trainer.enable_progress_bar", "false"),
        *options,
    ]


def own_command(name: str) -> list[str]:
    """Return the words that start a command of the project."""
    return [sys.executable, "-m", "bert_lightning", name]


def entry(kind: type, arguments: dict[str, object]) -> dict[str, object]:
    """Return a class and its arguments as the command line takes them."""
    return {"class_path": f"{kind.__module__}.{kind.__qualname__}", "init_args": arguments}
