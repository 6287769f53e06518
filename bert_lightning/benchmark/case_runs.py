"""Cases → results: each a ``fit`` in a process of its own, one after the other."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from bert_lightning.benchmark.cases import Case, Subject, fit_command, own_options
from bert_lightning.benchmark.peers import reason
from bert_lightning.benchmark.places import without_places
from bert_lightning.decisions import without_decisions

Result = dict[str, Any]
PROGRAM = (sys.executable, "-m", "bert_lightning.benchmark.leash")
CASE_SECONDS = 600  # a timed case that takes longer has failed
TICK_SECONDS = 0.5


class Interrupted(KeyboardInterrupt):
    """A signal ended the benchmark.

    Args:
        number: Of the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


@contextlib.contextmanager
def interrupting_signals() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM raise `Interrupted`, so that no process stays behind."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Interrupted(number)

    former = {
        number: signal.signal(number, interrupt)
        for number in (signal.SIGINT, signal.SIGTERM)
        if signal.getsignal(number) != signal.SIG_IGN  # as nohup has it
    }
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def run_case(case: Case, subject: Subject, tick: Callable[[], None]) -> Result:
    """Run a case and return what was measured, or the reason why nothing was.

    Args:
        case: The case.
        subject: What all have in common.
        tick: Called again and again while it runs.

    Raises:
        Interrupted: A signal ended the benchmark; the process is gone.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        started = time.time()
        words = fit_command(case, subject, folder, started)
        has_end = case.seed is not None or subject.full  # which may be far
        status, errors = run_words(words, folder, tick, None if has_end else CASE_SECONDS)
        seconds = round(time.time() - started, 1)
        if status is None:
            return {"reason": f"not done after {CASE_SECONDS} s", "process_seconds": seconds}
        measured = None if status else _measured(case, folder)
    if measured is None:
        return {"reason": without_places(reason(errors, [])), "process_seconds": seconds}
    by_hand = own_options(case, subject, measured.get("batch_size", case.batch))
    command = without_places(shlex.join(["fit", *by_hand]))
    return {**measured, "process_seconds": seconds, "command": command}


def run_words(
    words: list[str], folder: Path, tick: Callable[[], None], most: float | None
) -> tuple[int | None, str]:
    """Run a command of the project; return its status, None if it took too long, and its errors.

    Args:
        words: The command.
        folder: For what it says.
        tick: Called again and again while it runs.
        most: Seconds that it may take; None is any time.
    """
    devices = os.environ.get("CUDA_VISIBLE_DEVICES", "0")
    environment = {
        **without_decisions(os.environ),
        "CUDA_VISIBLE_DEVICES": devices.partition(",")[0],
        "PYTHONPATH": os.pathsep.join(filter(None, [_root(), os.environ.get("PYTHONPATH")])),
    }
    errors = folder / "errors.txt"
    with (
        (folder / "said.txt").open("wb") as said,
        errors.open("wb") as stderr,
        subprocess.Popen(
            [*PROGRAM, *words],
            env=environment,
            stdin=subprocess.PIPE,  # which the system closes when this process ends
            stdout=said,
            stderr=stderr,
            start_new_session=True,  # Ctrl-C reaches it through us alone
        ) as process,
    ):
        try:
            _wait(process, tick, most)
            status = process.poll()
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # none is left
                os.killpg(process.pid, signal.SIGKILL)
    return status, errors.read_text(encoding="utf-8", errors="replace")


def _wait(process: subprocess.Popen[bytes], tick: Callable[[], None], most: float | None) -> None:
    begun = time.monotonic()
    while most is None or time.monotonic() - begun < most:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(TICK_SECONDS)
            return
        tick()


def _measured(case: Case, folder: Path) -> Result | None:
    """Return what a fit has left, or None if it ended before all was measured."""
    report = json.loads((folder / "runs/1/report/report.json").read_text(encoding="utf-8"))
    result: Result = {
        "execution": report["execution"]["chosen"],
        "skipped_steps": (report["amp"] or {}).get("skipped", 0),
    }
    if case.seed is None:
        file = folder / "measured.json"
        if not file.is_file():
            return None
        return {**json.loads(file.read_text(encoding="utf-8")), **result}
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
