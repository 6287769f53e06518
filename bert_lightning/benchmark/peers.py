"""The project beside its peers: the same rows, the same card, one call.

    python -m bert_lightning.benchmark.peers [--groups NAME ...] [--data.path FOLDER]

Each cell of a group is a process of its own: the project through its own command, transformers'
Trainer (which needs the package accelerate) and pipeline, Lightning as it comes, a hand-written
loop. Every cell is written when it is measured, and a later call goes on with those that are not;
but compare only what one call has measured.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from bert_lightning import __version__
from bert_lightning.benchmark.peer_cells import (
    GROUPS,
    MAX_LENGTH,
    Cell,
    Group,
    Place,
    command,
    fit_command,
)
from bert_lightning.benchmark.peer_data import (
    HEADLINE_PIECES,
    LONG_PIECES,
    made_up_texts,
    make_model,
    store_rows,
    write_data,
)
from bert_lightning.benchmark.peer_tables import Result, as_markdown
from bert_lightning.benchmark.pipeline import environment
from bert_lightning.benchmark.stopwatch import Extent
from bert_lightning.checkpoint import CHECKPOINTS, LAST
from bert_lightning.errors import BertLightningError

CELL_SECONDS = 240  # a cell that takes longer has failed
HEADLINE_ROWS, LONG_ROWS, TITLES = 40_000, 20_000, 500_000
SMALL_ROWS = 256
SETTLING = 15.0  # seconds; a captured step takes half a second for each new shape, twice
SMALL_EXTENT = Extent(warmup=2, steps=4, seconds=5.0, repeats=2)
TEXT_SEED = 7  # of the texts to predict, other ones than those to train on


def main(arguments: list[str] | None = None) -> None:
    """Run what is not measured yet, print and write."""
    options = _parse(arguments)
    book = ResultBook(options.output / "peers.json", as_markdown)
    circumstances = circumstances_of(options)
    call = time.strftime("%Y-%m-%d %H:%M:%S")
    with tempfile.TemporaryDirectory() as folder:
        workplace = Workplace(Path(folder), options)
        for group in GROUPS:
            for cell in group.cells if group.name in options.groups else ():
                if options.cells and cell.name not in options.cells:
                    continue
                known = {"group": group.name, "cell": cell.name, "environment": circumstances}
                if options.again or not book.has(known):
                    book.add(known, {"call": call, **_measure(group, cell, workplace)})
    sys.stdout.write(as_markdown(book.results))


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    groups = [group.name for group in GROUPS]
    cells = list(dict.fromkeys(cell.name for group in GROUPS for cell in group.cells))
    parser = argparse.ArgumentParser(
        prog="python -m bert_lightning.benchmark.peers", allow_abbrev=False
    )
    parser.add_argument("--groups", nargs="+", choices=groups, default=groups, metavar="GROUP")
    parser.add_argument("--cells", nargs="+", choices=cells, metavar="CELL", help="of the groups")
    parser.add_argument("--output", type=Path, default=Path("runs", "benchmark"))
    parser.add_argument("--again", action="store_true", help="measure anew what is known")
    parser.add_argument("--warmup", type=int, help="steps before the measured ones")
    parser.add_argument("--steps", type=int, help="steps of a window")
    parser.add_argument("--seconds", type=float, help="most seconds of a window")
    parser.add_argument("--data.path", dest="data", type=Path, help="real titles, for titles-32")
    parser.add_argument("--model", type=Path, help="a folder; without it bert-base's shape")
    parser.add_argument("--small", action="store_true", help="a tiny model, few steps: for a CPU")
    options = parser.parse_args(arguments)
    if options.warmup is not None and options.warmup < 1:
        parser.error(f"--warmup: expected 1 or more – found {options.warmup}")
    for key, path in (("--data.path", options.data), ("--model", options.model)):
        if path and not path.is_dir():
            parser.error(f"{key}: expected a folder – found none at {path}")
    return options


def circumstances_of(options: argparse.Namespace) -> dict[str, Any]:
    """Return what a result depends on beside the cell, paths of this machine left out."""
    versions = {"bert_lightning": __version__, "lightning": version("lightning")}
    with contextlib.suppress(PackageNotFoundError):  # the cells that need it say so
        versions["accelerate"] = version("accelerate")
    shape = "small" if options.small else "bert-base's shape"
    return {
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "model": options.model.name if options.model else shape,
        **environment(),
        **versions,
    }


class ResultBook:
    """Results on disk, written anew with each one, so that a call that is cut off loses one cell.

    Args:
        file: JSON that earlier calls may have written; the tables are written beside it.
        as_markdown: Makes the tables of all results.
    """

    def __init__(self, file: Path, as_markdown: Callable[[list[Result]], str]) -> None:
        self.file = file
        self.as_markdown = as_markdown
        stored = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        self.results: list[Result] = stored.get("results", [])

    def has(self, known: Result) -> bool:
        """Tell whether a cell is measured; one that failed is not."""
        return any(_is_of(row, known) and "reason" not in row for row in self.results)

    def add(self, known: Result, measured: Result) -> None:
        """Put a result in the place of an earlier one of the same cell, and write all.

        Args:
            known: What tells the cell from others.
            measured: ``samples_per_second`` and more, what a check ``found``, or the ``reason`` why
                there is nothing.
        """
        self.results = [row for row in self.results if not _is_of(row, known)]
        self.results.append({**known, **measured})
        self.file.parent.mkdir(parents=True, exist_ok=True)
        content = json.dumps({"results": self.results}, ensure_ascii=False, indent=1) + "\n"
        self.file.write_text(content, encoding="utf-8")
        self.file.with_suffix(".md").write_text(self.as_markdown(self.results), encoding="utf-8")
        name = " ".join(str(known[key]) for key in known if key != "environment")
        speed = f"{measured.get('samples_per_second', 0):,.0f} samples/s"
        outcome = measured.get("reason") or measured.get("found") or speed
        sys.stderr.write(f"{name}: {outcome}\n")


def _is_of(row: Result, known: Result) -> bool:
    return all(row.get(key) == value for key, value in known.items())


class Workplace:
    """Model, data and checkpoint in a folder, each made when a cell first needs it.

    Args:
        folder: Is empty.
        options: Of the command line.
    """

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self.folder = folder
        self.options = options
        self._places: dict[str, Place] = {}

    @property
    def places(self) -> list[Path]:
        """Folders of this machine that a message may name."""
        given = [path.absolute().parent for path in (self.options.data, self.options.model) if path]
        return [self.folder, *given]

    def extent(self, group: Group) -> Extent:
        """Return how much of a group is measured."""
        extent = SMALL_EXTENT if self.options.small else Extent(group.warmup, settling=SETTLING)
        given = {name: getattr(self.options, name) for name in ("warmup", "steps", "seconds")}
        return replace(extent, **{name: value for name, value in given.items() if value})

    def place(self, group: Group) -> Place:
        """Return where the cells of a group find all that they need."""
        if group.name not in self._places:
            self._places[group.name] = self._prepared(group)
        return self._places[group.name]

    def _prepared(self, group: Group) -> Place:
        model = self.options.model or self.folder / "model"
        if not model.exists():
            make_model(model, self.options.small)
        place = Place(
            model=model,
            data=self.options.data if group.data == "titles" else self.folder / group.data,
            rows=self.folder / f"{group.data}.npz",
            texts=self.folder / "texts.txt",
            cache=self.folder / "cache",
            checkpoint=self.folder / "trained" / "runs" / "1" / CHECKPOINTS / LAST,
            runs=self.folder,
            output=self.folder / "measured.json",
        )
        if not place.data.exists():
            pieces, rows = {
                "headlines": (HEADLINE_PIECES, HEADLINE_ROWS),
                "long": (LONG_PIECES, LONG_ROWS),
            }[group.data]
            write_data(place.data, SMALL_ROWS if self.options.small else rows, pieces)
        if group.predicts:
            self._prepare_prediction(group, place)
        elif not place.rows.exists():
            store_rows(place.data, place.model, place.cache, MAX_LENGTH, place.rows)
        return place

    def _prepare_prediction(self, group: Group, place: Place) -> None:
        titles = SMALL_ROWS if self.options.small else TITLES
        texts = made_up_texts(titles, HEADLINE_PIECES, TEXT_SEED)
        place.texts.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
        one_step = fit_command(
            group,
            replace(place, runs=self.folder / "trained"),
            *("--trainer.accelerator", "cpu", "--trainer.precision", "32"),
            *("--trainer.max_steps", "1", "--data.batch_size", "1"),
        )
        done = run_words(one_step)
        if done.returncode:
            raise RuntimeError(f"no checkpoint to predict with: {done.stderr[-2000:]}")


def _measure(group: Group, cell: Cell, workplace: Workplace) -> Result:
    """Run a cell and return what was measured, or the reason why nothing was."""
    options = workplace.options
    if not torch.cuda.is_available() and not options.small:
        return {"reason": "no CUDA"}
    if group.data == "titles" and not options.data:
        return {"reason": "needs --data.path"}
    try:
        place = workplace.place(group)
    except BertLightningError as error:
        return {"reason": reason(f"error: {error}", workplace.places)}
    place.output.unlink(missing_ok=True)
    started = time.time()
    words = command(cell, group, place, workplace.extent(group), started)
    try:
        done = run_words(words)
    except subprocess.TimeoutExpired:
        return {"reason": f"not done after {CELL_SECONDS} s"}
    seconds = time.time() - started
    if done.returncode or not place.output.is_file():
        return {"reason": reason(done.stderr, workplace.places)}
    measured: Result = json.loads(place.output.read_text(encoding="utf-8"))
    if group.predicts:
        titles = len(place.texts.read_text(encoding="utf-8").splitlines())
        measured = prediction_rates(measured, titles, seconds)
    return {"options": list(cell.options), "process_seconds": round(seconds, 1), **measured}


def run_words(words: list[str], devices: int = 1) -> subprocess.CompletedProcess[str]:
    """Run a command that sees the first devices alone: transformers' Trainer would take all."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(devices)))
    return subprocess.run(
        words,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ",".join(given.split(",")[:devices])},
        capture_output=True,
        text=True,
        check=False,
        timeout=CELL_SECONDS,
    )


def prediction_rates(measured: Result, titles: int, total_seconds: float) -> Result:
    """Add titles a second: after start-up, all in all, and of the loop alone where it was timed."""
    rates = {
        "titles": titles,
        "samples_per_second": round(titles / measured["seconds"], 1),
        "total_samples_per_second": round(titles / total_seconds, 1),
    }
    if "loop_seconds" in measured:
        rates["loop_samples_per_second"] = round(titles / measured["loop_seconds"], 1)
    return {**measured, **rates}


def reason(stderr: str, places: list[Path]) -> str:
    """Return in a line why a process failed.

    Args:
        stderr: What it said.
        places: Folders of this machine, which are not named.
    """
    if "out of memory" in stderr:
        return "out of memory"
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"([\w.]*Error|error): ", line)]
    text = (errors or lines or ["ended before all was measured"])[-1]
    for place in places:
        text = text.replace(f"{place}/", "")
    return text[:200].replace("|", "/")


if __name__ == "__main__":
    main()
