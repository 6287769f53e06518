"""``fit --seeds [1,2,3]``: the same command line once a seed, each in a fresh process.

A process a seed, so that none inherits random state, memory or a launcher's variables from another.
What comes out is a complete run a seed and one summary of all: seeds.json.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from bert_lightning.checkpoint import CHECKPOINTS, LAST
from bert_lightning.console import Console, leave_terminal
from bert_lightning.decisions import is_first_process, without_decisions
from bert_lightning.devices import is_one_of_many
from bert_lightning.errors import ConfigError
from bert_lightning.metrics import SCORES
from bert_lightning.replacing import replacing
from bert_lightning.runs import FOLDER_VARIABLE, seed_folder

SUMMARY = "seeds.json"
LARGEST_SEED = 2**32 - 1
_PACKAGE = Path(__file__).parent
_ENDING = ("SIGINT", "SIGTERM", "SIGHUP")
_SAVING = ("SIGUSR1",)


def refuse_checkpoint(typed: Mapping[str, Any]) -> None:
    """Refuse seeds together with a checkpoint, which would give every seed the same start.

    Args:
        typed: What the user gave, by dotted key.

    Raises:
        ConfigError: Both are given.
    """
    unset = (None, "null")
    if typed.get("seeds") not in unset and typed.get("ckpt_path") not in unset:
        raise ConfigError(
            "seeds: expected runs that start afresh – found ckpt_path"
            f" {str(typed['ckpt_path'])!r} beside them\nleave out one of the two; a seed's own run"
            " goes on with --ckpt_path runs/NUMBER/seed_NUMBER"
        )


def check_seeds(seeds: Sequence[int], trainer: Any) -> None:
    """Refuse seeds that cannot be run or summed up.

    Args:
        seeds: Value of ``seeds``.
        trainer: The ``trainer`` group of the configuration.

    Raises:
        ConfigError: All faults found.
    """
    problems = []
    in_range = all(0 <= seed <= LARGEST_SEED for seed in seeds)
    if not seeds or not in_range or len(set(seeds)) < len(seeds):
        problems.append(
            f"seeds: expected different whole numbers from 0 to {LARGEST_SEED}, such as [1,2,3]"
            f" – found {list(seeds)}"
        )
    if trainer.fast_dev_run:
        problems.append(
            "seeds: expected runs that are kept – found trainer.fast_dev_run, which writes nothing"
        )
    if trainer.num_nodes > 1 or is_one_of_many():
        problems.append(
            "seeds: expected one command that starts its own processes – found one of several, as"
            " torchrun, srun or trainer.num_nodes start them\nstart one command a seed there, with"
            " --seed_everything"
        )
    if problems:
        raise ConfigError("\n".join(problems))


def run_seeds(args: Sequence[str], seeds: Sequence[int], folder: Path, console: Console) -> int:
    """Run a command line once a seed, and write what the seeds have in common.

    Args:
        args: The command line of fit, without the program name.
        seeds: The seeds, in the order in which they run.
        folder: ``runs/<number>``, made for this command.
        console: Where lines go.

    Returns:
        Exit status: 0 all finished, 1 one failed, 128 + the number of a signal that ended it.
    """
    failed: dict[int, int] = {}
    finished: list[int] = []
    with _forwarded_signals() as process:
        for number, seed in enumerate(seeds, 1):
            run = seed_folder(folder, seed)
            console.say(f"{'seed':<9} {seed} ({number} of {len(seeds)}) in {run}")
            words = [*args, "--seeds", "null", "--seed_everything", str(seed)]
            status = process.run(words, run)
            if process.stopped_by:  # Lightning's processes may end with 0 after a SIGTERM
                status = 128 + process.stopped_by
            if status:
                failed[seed] = status
                console.say(f"{'seed':<9} {seed} {_end(status, process.stopped_by)}")
            else:
                finished.append(seed)
            if run.is_dir():
                _write(folder, summary(folder, seeds, finished, failed))
            elif number < len(seeds) and not process.stopped_by:  # refused before it wrote anything
                console.say(f"{'seeds':<9} the others are not started: all are set alike")
                break
            if process.stopped_by:
                break
    for line in [*_lines(folder, seeds, finished), *_ways_on(folder, seeds, finished)]:
        console.say(line)
    if process.stopped_by:
        return 128 + process.stopped_by
    return 0 if len(finished) == len(seeds) else 1


def follow_starter() -> None:
    """In the process of a seed: save and stop once the command of all seeds is gone.

    That one holds the other end of standard input, which the system closes however it ends.
    """
    if is_of_seed() and is_first_process():
        threading.Thread(target=_stop_with_starter, daemon=True).start()


def is_of_seed() -> bool:
    """Tell whether this process belongs to one seed of a command that has several."""
    return FOLDER_VARIABLE in os.environ


def _stop_with_starter() -> None:
    while os.read(sys.__stdin__.fileno(), 1):  # type: ignore[union-attr]
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _end(status: int, signal_number: int) -> str:
    if signal_number:
        return f"stopped by {signal.Signals(signal_number).name}"
    if status == 128 + signal.SIGKILL:
        return "was ended by SIGKILL, as the system does where memory runs out"
    return f"failed with status {status}"


class _SeedProcess:
    """The process of a seed, in a group of its own with the ranks that it starts.

    A signal for the command goes to its first process, which ends its ranks; a second signal ends
    the group at once.
    """

    def __init__(self) -> None:
        self.stopped_by = 0
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, args: Sequence[str], folder: Path) -> int:
        """Run the project's command line to its end; return the exit status."""
        if self.stopped_by:
            return 128 + self.stopped_by
        environment = {**without_decisions(os.environ), FOLDER_VARIABLE: str(folder.absolute())}
        self._process = subprocess.Popen(
            [*_program(), *args], env=environment, stdin=subprocess.PIPE, start_new_session=True
        )
        if self.stopped_by:  # while it was started
            self._send(self.stopped_by)
        status = self._process.wait()
        self._send(signal.SIGKILL)  # ranks that outlived their first process
        self._process = None
        return status if status >= 0 else 128 - status

    def save(self, number: int, _: FrameType | None) -> None:
        """Pass on a signal after which the seed goes on."""
        self._send(number)

    def stop(self, number: int, _: FrameType | None) -> None:
        """Pass on a signal that ends the seed and the command."""
        if signal.Signals(number).name == "SIGHUP":
            leave_terminal()
        again, self.stopped_by = bool(self.stopped_by), number
        self._send(signal.SIGKILL if again else number)

    def _send(self, number: int) -> None:
        if self._process:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # none is left
                if number == signal.SIGKILL:
                    os.killpg(self._process.pid, number)
                else:  # the first process ends its ranks; told twice, they can wait for each other
                    os.kill(self._process.pid, number)


@contextlib.contextmanager
def _forwarded_signals() -> Iterator[_SeedProcess]:
    process = _SeedProcess()
    former = {}
    for name in (*_ENDING, *_SAVING):
        number = getattr(signal, name, None)
        if number and signal.getsignal(number) != signal.SIG_IGN:  # as nohup has it
            former[number] = signal.getsignal(number)
            signal.signal(number, process.stop if name in _ENDING else process.save)
    try:
        yield process
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _program() -> list[str]:
    """Return what starts the project as Lightning's launcher can start it again, in any folder."""
    beside = _PACKAGE.parent / "main.py"
    shipped = (_PACKAGE.parent / "configs" / "base.yaml").is_file() and beside.is_file()
    return [sys.executable, *([str(beside)] if shipped else ["-m", _PACKAGE.name])]


def summary(
    folder: Path, seeds: Sequence[int], finished: Sequence[int], failed: Mapping[int, int]
) -> dict[str, Any]:
    """Return what goes into seeds.json.

    ``std`` is the sample standard deviation (n - 1), null for one seed. The scores of ``val`` are
    those of the best checkpoint, which is the one that is tested.

    Args:
        folder: ``runs/<number>``.
        seeds: All seeds that were asked for.
        finished: Those whose process ended with status 0.
        failed: Exit status of the others that have ended.
    """
    runs = {str(seed): _scores(seed_folder(folder, seed)) for seed in finished}
    values: dict[str, list[float]] = {}
    for scores in runs.values():
        for name, value in scores.items():
            if math.isfinite(value):
                values.setdefault(name, []).append(value)
    return {
        "seeds": list(seeds),
        "finished": list(finished),
        "failed": {str(seed): status for seed, status in failed.items()},
        "summary": {name: _spread(numbers) for name, numbers in values.items()},
        "scores": {
            seed: {name: value if math.isfinite(value) else None for name, value in scores.items()}
            for seed, scores in runs.items()
        },
    }


def _scores(run: Path) -> dict[str, float]:
    """Return val and test scores of a run by logged name."""
    report = run / "report" / "report.json"
    if not report.is_file():
        return {}
    content = json.loads(report.read_text(encoding="utf-8"))
    scores: dict[str, float] = {}
    scored = [row for row in content["history"] if math.isfinite(row["macro_f1"])]
    if scored:
        best = max(scored, key=lambda row: row["macro_f1"])  # the earliest of equals
        scores |= {f"val/{name}": float(best[name]) for name in SCORES}
    if test := content["results"].get("test"):
        scores |= {f"test/{name}": float(test[name]) for name in SCORES}
    return scores


def _spread(values: Sequence[float]) -> dict[str, Any]:
    return {
        "mean": statistics.fmean(values),
        "std": statistics.stdev(values) if len(values) > 1 else None,
        "min": min(values),
        "max": max(values),
        "seeds": len(values),
    }


def _write(folder: Path, content: dict[str, Any]) -> None:
    with replacing(folder / SUMMARY, encoding="utf-8") as stream:
        stream.write(json.dumps(content, ensure_ascii=False, indent=1) + "\n")


def _lines(folder: Path, seeds: Sequence[int], finished: Sequence[int]) -> Iterator[str]:
    yield f"{'seeds':<9} {len(finished)} of {len(seeds)} finished"
    file = folder / SUMMARY
    if not file.is_file():
        return
    for name, spread in json.loads(file.read_text(encoding="utf-8"))["summary"].items():
        std = "" if spread["std"] is None else f" ± {spread['std']:.4f}"
        yield f"{name:<14} {spread['mean']:.4f}{std} ({spread['min']:.4f} to {spread['max']:.4f})"
    yield f"{'out':<9} {file}"


def _ways_on(folder: Path, seeds: Sequence[int], finished: Sequence[int]) -> Iterator[str]:
    """Yield how to go on with the seeds that are not finished."""
    begun = [seed for seed in seeds if seed_folder(folder, seed).is_dir()]
    for seed in begun:
        run = seed_folder(folder, seed)
        if seed not in finished and (run / CHECKPOINTS / LAST).is_file():
            yield f"{'seed':<9} {seed} goes on with fit --ckpt_path {run}"
    later = [seed for seed in seeds if seed not in begun]
    if begun and later:
        text = f"[{','.join(map(str, later))}]"
        yield f"{'seeds':<9} not begun: {text}; the same command with --seeds {text} trains them"
