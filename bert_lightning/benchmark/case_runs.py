"""Cases → results: each a ``fit`` in a process of its own, one after the other."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from bert_lightning.benchmark.cases import Case, Subject, fit_command, own_options
from bert_lightning.benchmark.peers import reason
from bert_lightning.benchmark.stopwatch import Extent
from bert_lightning.decisions import without_decisions

Result = dict[str, Any]
CASE_SECONDS = 600  # a timed case that takes longer has failed
TICK_SECONDS = 0.5
INTERRUPTED = "interrupted"


def run_case(
    case: Case,
    subject: Subject,
    extent: Extent,
    memory_gib: float | None,
    tick: Callable[[], None],
) -> Result:
    """Run a case and return what was measured, or the reason why nothing was.

    Args:
        case: The case.
        subject: What all have in common.
        extent: How much is measured.
        memory_gib: What it may take of a GPU; None is the whole card.
        tick: Called again and again while it runs.

    Raises:
        KeyboardInterrupt: The user or a signal ended the benchmark; the process is gone.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        started = time.time()
        words = fit_command(case, subject, extent, memory_gib, folder, started)
        most = CASE_SECONDS if case.seed is None else None
        status, errors = run_words(words, folder, most, tick)
        seconds = round(time.time() - started, 1)
        if status is None:
            return {"reason": f"not done after {CASE_SECONDS} s", "process_seconds": seconds}
        try:
            measured = _measured(case, folder) if not status else None
        except FileNotFoundError:  # it ended before all was measured
            measured = None
        if measured is None:
            return {"reason": reason(errors, [folder]), "process_seconds": seconds}
    batch = measured.get("batch_size", case.batch)
    command = " ".join(["fit", *map(_without_place, own_options(case, subject, batch))])
    return {**measured, "process_seconds": seconds, "command": command}


def run_words(
    words: list[str], folder: Path, most: float | None, tick: Callable[[], None]
) -> tuple[int | None, str]:
    """Run a command to its end; return its status, None if it took too long, and its errors.

    Args:
        words: The command.
        folder: For what it says.
        most: Seconds that it may take; None is any time.
        tick: Called again and again while it runs.
    """
    devices = os.environ.get("CUDA_VISIBLE_DEVICES", "0")
    environment = {
        **without_decisions(os.environ),
        "CUDA_VISIBLE_DEVICES": devices.partition(",")[0],
        "PYTHONPATH": os.pathsep.join(filter(None, [_root(), os.environ.get("PYTHONPATH")])),
    }
    errors = folder / "errors.txt"
    begun = time.monotonic()
    with (
        (folder / "said.txt").open("wb") as said,
        errors.open("wb") as stderr,
        _killed_at_the_end(
            # a session of its own: Ctrl-C reaches it through us alone
            subprocess.Popen(
                words, env=environment, stdout=said, stderr=stderr, start_new_session=True
            )
        ) as process,
    ):
        while most is None or time.monotonic() - begun < most:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(TICK_SECONDS)
                break
            tick()
        in_time = process.poll() is not None
    return process.returncode if in_time else None, errors.read_text(
        encoding="utf-8", errors="replace"
    )


@contextlib.contextmanager
def _killed_at_the_end(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextlib.contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """Let SIGTERM end the benchmark as Ctrl-C does, so that no process stays behind."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _measured(case: Case, folder: Path) -> Result:
    report = json.loads((folder / "runs/1/report/report.json").read_text(encoding="utf-8"))
    result: Result = {
        "execution": report["execution"]["chosen"],
        "skipped_steps": (report["amp"] or {}).get("skipped", 0),
    }
    if case.seed is None:
        measured = json.loads((folder / "measured.json").read_text(encoding="utf-8"))
        return {**measured, **result}
    best = max(report["history"], key=lambda row: row["macro_f1"])  # the earliest of equals
    return {
        **result,
        "accuracy": best["accuracy"],
        "macro_f1": best["macro_f1"],
        "trained_epoch_seconds": report["epoch_seconds"],
    }


def _root() -> str:
    """Return the folder of the package, so that the processes run this very code."""
    return str(Path(__file__).parents[2])


def _without_place(word: str) -> str:
    return Path(word).name if os.sep in word and Path(word).exists() else word
