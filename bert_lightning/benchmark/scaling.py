"""How far more devices help: each strategy on one device and on several, in one call.

    python -m bert_lightning.benchmark.scaling [--devices 1 2 4] [--small]

Each cell is a `fit` of its own by the project's command, ``--config amp.yaml`` with the strategy's
YAML. Every cell is written when it is measured, and a later call goes on with those that are not.
After the speed come checks of what must not depend on the number of devices (`scaling_checks`).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from bert_lightning.benchmark.peer_cells import EPOCHS, Group, entry, fit_command
from bert_lightning.benchmark.peer_tables import Result
from bert_lightning.benchmark.peers import (
    ResultBook,
    Workplace,
    circumstances_of,
    reason,
    run_words,
)
from bert_lightning.benchmark.scaling_checks import (
    CHECKS,
    STRATEGY_OPTIONS,
    precision_options,
)
from bert_lightning.benchmark.scaling_tables import as_markdown
from bert_lightning.benchmark.stopwatch import ProcessTimer

SMALL = (2, 4)  # steps of warm-up and window on a CPU


@dataclass(frozen=True)
class Load:
    """What each device is given.

    Args:
        group: The rows and how many make a batch.
        steps: Of the window.
    """

    group: Group
    steps: int


LOADS = (
    Load(Group("headlines-32", "Batch 32 a device, headlines", "headlines", 32, ()), 400),
    Load(Group("headlines-256", "Batch 256 a device, headlines", "headlines", 256, ()), 200),
    Load(Group("length-128-32", "Batch 32 a device, length 128", "long", 32, (), 50), 300),
    Load(Group("length-128-256", "Batch 256 a device, length 128", "long", 256, (), 30), 60),
)


def main(arguments: list[str] | None = None) -> None:
    """Run what is not measured yet, print and write."""
    options = _parse(arguments)
    book = ResultBook(options.output / "scaling.json", as_markdown)
    circumstances = circumstances_of(options)
    call = time.strftime("%Y-%m-%d %H:%M:%S")

    def measure(known: Result, work: Callable[..., Result], *given: Any) -> None:
        known = {**known, "environment": circumstances}
        if options.again or not book.has(known):
            absent = missing(known["devices"], options.small)
            book.add(known, {"call": call, **({"reason": absent} if absent else work(*given))})

    with tempfile.TemporaryDirectory() as folder:
        workplace = Workplace(Path(folder), options)
        for load in LOADS:
            for devices, strategy in _cells(options):
                known = {"group": load.group.name, "cell": strategy, "devices": devices}
                measure(known, _measure, load, strategy, devices, workplace)
        for devices in (number for number in options.devices if number > 1):
            for name, check in CHECKS.items():
                place = Path(folder, f"{name} on {devices}")
                known = {"group": "checks", "cell": name, "devices": devices}
                measure(known, check, place, devices, options.small)
    sys.stdout.write(as_markdown(book.results))


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bert_lightning.benchmark.scaling", allow_abbrev=False
    )
    parser.add_argument("--devices", type=int, nargs="+", default=[1, 2], metavar="N")
    parser.add_argument(
        "--strategies", nargs="+", choices=list(STRATEGY_OPTIONS), default=list(STRATEGY_OPTIONS)
    )
    parser.add_argument("--output", type=Path, default=Path("runs", "benchmark"))
    parser.add_argument("--again", action="store_true", help="measure anew what is known")
    parser.add_argument("--small", action="store_true", help="a tiny model, few steps: for a CPU")
    parser.set_defaults(model=None, data=None)
    options = parser.parse_args(arguments)
    if min(options.devices) < 1:
        parser.error(f"--devices: expected 1 or more – found {min(options.devices)}")
    return options


def _cells(options: argparse.Namespace) -> list[tuple[int, str]]:
    """Return numbers of devices and strategies; no strategy is one device as fast as it can be."""
    return [
        (devices, strategy)
        for devices in options.devices
        for strategy in options.strategies
        if devices == 1 or STRATEGY_OPTIONS[strategy]
    ]


def _measure(load: Load, strategy: str, devices: int, workplace: Workplace) -> Result:
    """Run a cell and return what its processes have measured together, or why nothing was."""
    small = workplace.options.small
    place = workplace.place(load.group)
    place = replace(place, runs=workplace.folder / f"{load.group.name} {strategy} {devices}")
    warmup, steps = SMALL if small else (load.group.warmup, load.steps)
    timer = {
        "started": time.time(),
        "output": str(place.runs / "measured.json"),
        "warmup": warmup,
        "steps": steps,
    }
    place.runs.mkdir()
    words = fit_command(
        load.group,
        place,
        *("--trainer.callbacks", json.dumps([entry(ProcessTimer, timer)])),
        *("--trainer.max_epochs", str(EPOCHS), "--trainer.enable_checkpointing", "false"),
        *precision_options(small),
        *STRATEGY_OPTIONS[strategy],
        *("--trainer.devices", str(devices)),
    )
    try:
        done = run_words(words, devices)
    except subprocess.TimeoutExpired as error:
        return {"reason": f"not done after {error.timeout:g} s"}
    if done.returncode:
        return {"reason": reason(done.stderr, workplace.places)}
    report = json.loads((place.runs / "runs/1/report/report.json").read_text(encoding="utf-8"))
    return together(
        [
            json.loads((place.runs / f"measured.{process}.json").read_text(encoding="utf-8"))
            for process in range(devices)
        ],
        report["execution"]["chosen"],
    )


def missing(devices: int, small: bool) -> str:
    """Return why a cell cannot run here, or nothing."""
    found = torch.cuda.device_count()
    return "" if small or devices <= found else f"needs {devices} CUDA devices, found {found}"


def together(processes: list[Result], execution: str) -> Result:
    """Return what processes have done side by side: their speeds add, the most memory counts."""
    summed = ("samples_per_second", "pieces_per_second")
    most = ("seconds", "allocated_gib", "reserved_gib", "first_step_seconds")
    return {
        **{key: round(sum(each[key] for each in processes), 1) for key in summed},
        **{key: max((each[key] for each in processes), key=lambda x: x or 0) for key in most},
        "steps": processes[0]["steps"],
        "extent": processes[0]["extent"],
        "execution": execution,
    }


if __name__ == "__main__":
    main()
