"""What must not depend on the number of devices: scores, counts, checkpoints, the end of a job."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bert_lightning.benchmark.peer_cells import own_command
from bert_lightning.benchmark.peer_tables import Result
from bert_lightning.benchmark.peers import reason

STRATEGY_OPTIONS: dict[str, tuple[str, ...]] = {
    "no strategy": (),
    "ddp": ("--config", "ddp.yaml"),
    "ddp_static": ("--config", "ddp_static.yaml"),
    "ddp_fp16_hook": ("--config", "ddp_fp16_hook.yaml"),
    "fsdp": ("--config", "fsdp.yaml"),
}
Check = Callable[[Path, int, bool], Result]  # folder, devices, whether small
ROWS_A_STEP = 64
SAME_SCORE = 0.005  # five of a thousand titles
CHECK_SECONDS = 240
END_SECONDS = 15.0  # a job is over so long after one of its processes was killed


def precision_options(small: bool) -> tuple[str, ...]:
    """Return what the cells run in: a CPU has no loss scale."""
    return ("--trainer.accelerator", "cpu") if small else ("--config", "amp.yaml")


def equal_scores(folder: Path, devices: int, small: bool) -> Result:
    """Train with as many rows a step on one device and on several: the test scores are the same."""
    scores = []
    for number in (1, devices):
        place = folder / str(number)
        failure = _fit(place, number, small)
        if failure:
            return failure
        scores.append(_report(place)["results"]["test"]["accuracy"])
    return {
        "expected": f"test accuracy {scores[0]:.4f} of one device, to {SAME_SCORE}",
        "found": f"{scores[1]:.4f}",
        "holds": abs(scores[0] - scores[1]) <= SAME_SCORE,
    }


def exact_counts(folder: Path, devices: int, small: bool) -> Result:
    """Validate and test rows that no number of devices divides: each is counted once."""
    failure = _fit(folder, devices, small, "--data.batch_size", "7")
    if failure:
        return failure
    report = _report(folder)
    found = sum(map(sum, report["results"]["test"]["confusion"]))
    expected = report["rows"]["test"]
    return {
        "expected": f"{expected} rows in the confusion matrix",
        "found": str(found),
        "holds": found == expected,
    }


def resumed_on_one(folder: Path, devices: int, small: bool) -> Result:
    """Go on with a checkpoint of several devices on one: no step is lost."""
    failure = _fit(folder, devices, small)
    if failure:
        return failure
    run = folder / "runs/1"
    checkpoints = sorted(file.name for file in (run / "checkpoints").iterdir())
    steps = _report(folder)["steps"]
    failure = _fit(folder, 1, small, "--ckpt_path", "last", "--trainer.max_epochs", "2")
    if failure:
        return failure
    found = _report(folder)["steps"]
    return {
        "expected": f"{2 * steps} steps after two epochs, the first on {devices} devices",
        "found": f"{found}; {', '.join(checkpoints)}",
        "holds": found == 2 * steps,
    }


def ended_by_a_death(folder: Path, devices: int, small: bool) -> Result:
    """Kill the second process of a job: all end, with a status that is not 0."""
    folder.mkdir()
    words = [*_words(folder, devices, small), "--trainer.max_epochs", "1000"]
    with (folder / "said.txt").open("w+", encoding="utf-8") as said:
        job = subprocess.Popen(words, stdout=said, stderr=said, start_new_session=True)
        try:
            if not _wait_until(lambda: "\nsteps " in (folder / "said.txt").read_text("utf-8")):
                return {"reason": reason((folder / "said.txt").read_text("utf-8"), [folder])}
            os.kill(_family(job.pid)[1], signal.SIGKILL)
            killed = time.monotonic()
            _wait_until(lambda: job.poll() is not None and not _family(job.pid))
            seconds = time.monotonic() - killed
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)
    return {
        "expected": f"all {devices} processes gone within {END_SECONDS:g} s, status not 0",
        "found": f"{seconds:.1f} s, status {job.poll()}",
        "holds": seconds <= END_SECONDS and job.poll() not in (0, None),
    }


CHECKS: dict[str, Check] = {
    "equal scores": equal_scores,
    "exact counts": exact_counts,
    "resumed on one device": resumed_on_one,
    "ended by a death": ended_by_a_death,
}


def _words(folder: Path, devices: int, small: bool) -> list[str]:
    strategy = STRATEGY_OPTIONS["ddp"] if devices > 1 else ()
    rows = ("--trainer.limit_train_batches", "20") if small else ()
    return [
        *own_command("fit"),
        *("--data.path", "builtin", "--model.pretrained", "builtin", "--model.dropout", "0"),
        *("--data.batch_size", str(ROWS_A_STEP // devices), "--trainer.max_epochs", "1"),
        *("--trainer.default_root_dir", str(folder), "--trainer.enable_progress_bar", "false"),
        *precision_options(small),
        *strategy,
        *rows,
        *("--trainer.devices", str(devices)),
    ]


def _fit(folder: Path, devices: int, small: bool, *options: str) -> Result | None:
    """Run a fit to its end; return why it failed, or nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [*_words(folder, devices, small), *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=CHECK_SECONDS,
    )
    return {"reason": reason(done.stderr, [folder])} if done.returncode else None


def _report(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(
        (folder / "runs/1/report/report.json").read_text(encoding="utf-8")
    )
    return content


def _family(group: int) -> list[int]:
    """Return the processes of a group that are alive, in the order of their start."""
    alive = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, own = file.read_text(encoding="utf-8").rpartition(")")[2].split()[:3]
            if int(own) == group and state != "Z":
                alive.append(int(file.parent.name))
    return sorted(alive)


def _wait_until(condition: Callable[[], bool]) -> bool:
    until = time.monotonic() + CHECK_SECONDS
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(0.1)
    return False
