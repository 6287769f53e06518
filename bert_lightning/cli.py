"""Command line → exit status: runs the command that is named, shows errors on one screen.

``main`` is callable with an argument list. A command is imported when it is named, as torch and
Lightning take seconds to load and an overview needs neither.
"""

from __future__ import annotations

import errno
import os
import select
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from bert_lightning import __version__
from bert_lightning.arguments import (
    BENCHMARK,
    BENCHMARK_TASK,
    COMMANDS,
    INSPECT,
    INSPECT_TASK,
    first_reason,
)
from bert_lightning.decisions import decided, forget_decisions, is_first_process
from bert_lightning.errors import BertLightningError, ConfigError, on_screen
from bert_lightning.interrupts import raise_again
from bert_lightning.limits import reached
from bert_lightning.notices import is_about_settings
from bert_lightning.runs import discard_if_empty, release_runs, run_of_checkpoint

ROOM_BYTES = 1 << 20  # a disk that has these free was not what is full


def main(args: Sequence[str] | None = None) -> int:
    """Run a command line.

    Args:
        args: Arguments without the program name; None takes those of the process.

    Returns:
        Exit status: 0 done, 1 an error that the user can act on, shown on one screen, or a seed
        that failed; 128 + a signal that ended the seeds, or Ctrl-C before there is one to end;
        141 where what reads the output has read enough; a run is done nevertheless.
    """
    _lead_closed_streams_nowhere()
    given = sys.argv[1:] if args is None else list(args)
    try:
        return _run(given)
    except BertLightningError as error:
        return _refuse(str(error))
    except Exception as error:
        return _end_by(error, given)
    except (KeyboardInterrupt, SystemExit) as error:
        # Lightning turns Ctrl-C into status 1
        if KeyboardInterrupt not in (type(error), type(error.__context__)):
            raise
        sys.stderr.write("stopped by Ctrl-C\n")
        return 128 + signal.SIGINT
    finally:
        discard_if_empty(decided("RUN"))
        forget_decisions()
        release_runs()


def _lead_closed_streams_nowhere() -> None:
    """Let no file that is opened later take the place of a standard stream that is closed."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = Path(os.devnull).open(mode, encoding="utf-8")  # noqa: SIM115
            setattr(sys, name, stream)


def _end_by(error: Exception, given: list[str]) -> int:
    """Say what the system or a library has refused; raise again what a user cannot act on.

    Where a run has kept a checkpoint, an error of the latter kind is shown with the way on.
    """
    run = _run_of_fit(given)
    if isinstance(error, BrokenPipeError) and _is_output_closed():
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or Python complains when it ends
        sys.stderr.write(_way_on(run))
        return 128 + signal.SIGPIPE
    if said := _refusal(error) or _removal(error, run):
        return _refuse(said)
    if said := reached(error) or _no_room(error, run) or _no_access(error):
        return _refuse(f"{said}\n{_way_on(run)}".rstrip())
    if not (way := _way_on(run)):
        raise error
    traceback.print_exception(error)
    sys.stderr.write(way)
    return 1


def _run_of_fit(given: list[str]) -> Path | None:
    """Return the folder of the run that trains, where there is one."""
    checkpoint = decided("CHECKPOINT")
    run = decided("RUN") or (run_of_checkpoint(Path(checkpoint)) if checkpoint else None)
    return Path(run) if run and "fit" in given else None


def _way_on(run: Path | None) -> str:
    """Return the line that says how to go on with a run that has kept a checkpoint, or nothing."""
    if not (run and is_first_process()):
        return ""
    from bert_lightning.checkpoint import CHECKPOINTS, LAST, way_on  # slow to load

    return f"{way_on(run)}\n" if (run / CHECKPOINTS / LAST).exists() else ""


def _refusal(error: Exception) -> str:
    """Return what Lightning or the parser says of a setting."""
    kinds = ValueError, TypeError, RuntimeError, ImportError
    is_one = isinstance(error, kinds) and is_about_settings(error)
    return first_reason(str(error)) if is_one else ""


def _removal(error: Exception, run: Path | None) -> str:
    is_one = isinstance(error, FileNotFoundError) and run and not run.is_dir()
    return (
        f"{run}: expected the folder of the run – found that it was removed meanwhile\n"
        "nothing of the run is kept: begin again"
        if is_one
        else ""
    )


def _no_room(error: Exception, run: Path | None) -> str:
    if not isinstance(error, OSError) or error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return ""
    is_full = error.errno == errno.ENOSPC
    if run and is_full and error.filename is None and shutil.disk_usage(run).free > ROOM_BYTES:
        return ""  # another disk, which the error does not name: its traceback tells who wrote
    place = "trainer.default_root_dir" if run else "output"
    name = Path(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else None
    if name and not (run and name.absolute().is_relative_to(run.absolute())):
        place = str(name)  # of another disk, as a callback of the user's may write there
    return f"{place}: expected room to write – found none on the disk\nmake room, then try again"


def _no_access(error: Exception) -> str:
    if not isinstance(error, OSError) or error.filename is None:
        return ""
    place = os.fsdecode(error.filename)
    return f"{place}: expected to read or write here – found {error.strerror}"


def _is_output_closed() -> bool:
    """Tell whether nobody reads standard output any more: `| head` has read enough."""
    output = select.poll()
    output.register(1, 0)
    return bool(output.poll(0))


def _run(given: list[str]) -> int:
    command = _loaded(given)
    raise_again()
    return command()


def _loaded(given: list[str]) -> Callable[[], int]:
    """Return what runs a command line, with all that it needs to begin."""
    if given[:1] == [INSPECT]:
        from bert_lightning.commands.inspect import inspect_data

        return partial(inspect_data, given[1:])
    if given[:1] == [BENCHMARK]:
        from bert_lightning.commands.benchmark import benchmark

        return partial(benchmark, given[1:])
    if not any(word in COMMANDS for word in given):
        return partial(_overview, given)
    from bert_lightning.commands.run import run_command

    return partial(run_command, given)


def _overview(given: list[str]) -> int:
    """Show the commands, or refuse words that name none."""
    tasks = {**COMMANDS, INSPECT: INSPECT_TASK, BENCHMARK: BENCHMARK_TASK}
    if "--version" in given:
        sys.stdout.write(f"bert-lightning {__version__}\n")
        return 0
    if "--help" not in given and "-h" not in given:
        raise ConfigError(
            f"command: expected one of {', '.join(tasks)} – found"
            f" {repr(given[0]) if given else 'nothing'}\nbert-lightning --help says what they do"
        )
    lines = [
        "usage: bert-lightning COMMAND [options]",
        "",
        "Fine-tune BERT on Chinese text classes.",
        "",
        *(f"  {name:<10}{task}" for name, task in tasks.items()),
        "",
        "bert-lightning COMMAND --help shows its options, bert-lightning --version the version.",
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _refuse(message: str) -> int:
    sys.stderr.write(f"error: {on_screen(message)}\n")
    return 1
