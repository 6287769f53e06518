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


class ReadyProcess:
    """A fresh process that has imported what takes long, and waits for a command of the project.

    It ends with this process, however that does, and ends all that it has started.
    """

    def __init__(self) -> None:
        self._place = tempfile.TemporaryDirectory()
        self.folder = Path(self._place.name)
        devices = os.environ.get("CUDA_VISIBLE_DEVICES", "0")
        environment = {
            **without_decisions(os.environ),
            "CUDA_VISIBLE_DEVICES": devices.partition(",")[0],
            "PYTHONPATH": os.pathsep.join(filter(None, [_root(), os.environ.get("PYTHONPATH")])),
        }
        with self._file("said").open("wb") as said, self._file("errors").open("wb") as errors:
            self._process = subprocess.Popen(
                PROGRAM,
                env=environment,
                stdin=subprocess.PIPE,  # which the system closes when this process ends
                stdout=said,
                stderr=errors,
                start_new_session=True,  # Ctrl-C reaches it through us alone
            )

    def __enter__(self) -> ReadyProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._kill()
        self._process.communicate()
        self._place.cleanup()

    def run(
        self, words: list[str], tick: Callable[[], None], most: float | None
    ) -> tuple[int | None, str]:
        """Run a command; return its status, None if it took too long, and its errors.

        Args:
            words: The command.
            tick: Called again and again while it runs.
            most: Seconds that it may take; None is any time.
        """
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):  # it has ended, as its status tells
            self._process.stdin.write(f"{json.dumps(words)}\n".encode())
            self._process.stdin.flush()
        _wait(self._process, tick, most)
        status = self._process.poll()
        self._kill()
        return status, self._file("errors").read_text(encoding="utf-8", errors="replace")

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # none is left
            os.killpg(self._process.pid, signal.SIGKILL)

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.txt"


class Processes:
    """Gives each command a process, and lets that of the next one get ready meanwhile.

    Args:
        ahead: Whether to start one ahead; on few CPU cores it would disturb what is measured.
    """

    def __init__(self, ahead: bool) -> None:
        self.ahead = ahead
        self._next: ReadyProcess | None = None

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        if self._next:
            self._next.__exit__()

    def take(self, more: bool = True) -> ReadyProcess:
        """Return a process; ``more`` tells whether another command is to follow."""
        process, self._next = self._next or ReadyProcess(), None
        if self.ahead and more:
            self._next = ReadyProcess()
        return process


def run_case(
    case: Case, subject: Subject, process: ReadyProcess, tick: Callable[[], None]
) -> Result:
    """Run a case and return what was measured, or the reason why nothing was.

    Args:
        case: The case.
        subject: What all have in common.
        process: Of this case; it is ended.
        tick: Called again and again while it runs.

    Raises:
        Interrupted: A signal ended the benchmark; the process is gone.
    """
    with process:
        started = time.time()
        words = fit_command(case, subject, process.folder, started)
        has_end = case.seed is not None or subject.full  # which may be far
        status, errors = process.run(words, tick, None if has_end else CASE_SECONDS)
        seconds = round(time.time() - started, 1)
        if status is None:
            return {"reason": f"not done after {CASE_SECONDS} s", "process_seconds": seconds}
        measured = None if status else _measured(case, process.folder)
    if measured is None:
        return {"reason": without_places(reason(errors, [])), "process_seconds": seconds}
    by_hand = own_options(case, subject, measured.get("batch_size", case.batch))
    command = without_places(shlex.join(["fit", *by_hand]))
    return {**measured, "process_seconds": seconds, "command": command}


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
