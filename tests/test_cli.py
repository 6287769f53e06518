"""What a command line loads, and the overview."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from bert_lightning import __version__, cli, seeds
from bert_lightning.arguments import BENCHMARK, COMMANDS, INSPECT
from bert_lightning.runs import FOLDER_VARIABLE
from bert_lightning.trainer import NewsTrainer

REPO = Path(__file__).parent.parent
HEAVY = ("datasets", "pandas", "pyarrow", "tensorboard", "transformers.models.bert")
LIBRARIES = ("torch", "lightning", "torchmetrics", "transformers", "numpy")
OTHER_COMMANDS = ("bert_lightning.commands.run", "lightning.pytorch.cli")


@pytest.mark.parametrize(
    ("words", "unneeded"),
    [
        pytest.param(["--help"], (*HEAVY, *LIBRARIES), id="overview"),
        pytest.param(["--version"], (*HEAVY, *LIBRARIES), id="version"),
        pytest.param(["fti"], (*HEAVY, *LIBRARIES), id="no command"),
        pytest.param(["fit", "--help"], HEAVY, id="fit"),
        pytest.param(["inspect", "--help"], (*HEAVY, *OTHER_COMMANDS), id="inspect"),
    ],
)
def test_a_command_line_loads_nothing_heavy_that_it_does_not_need(words, unneeded):
    code = f"""
import sys
from bert_lightning.cli import main
try:
    main({words!r})
except SystemExit:
    pass
sys.exit(", ".join(name for name in {unneeded!r} if name in sys.modules) or None)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPO, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_overview_says_what_each_command_does(run_cli):
    lines = run_cli("--help").out.splitlines()
    for command in COMMANDS:
        first_line = getattr(NewsTrainer, command).__doc__.splitlines()[0]
        assert f"  {command:<10}{first_line}" in lines
    for command in (INSPECT, BENCHMARK):
        assert any(line.startswith(f"  {command} ") for line in lines)


def test_the_version_is_that_of_the_package(run_cli):
    assert run_cli("--version").out == f"bert-lightning {__version__}\n"


@pytest.mark.parametrize(
    "place",
    [
        pytest.param("bert_lightning.commands.run.run_command", id="imports"),
        pytest.param("bert_lightning.datamodule.THUCNewsDataModule.setup", id="tokenising"),
    ],
)
def test_ctrl_c_before_training_ends_with_130_in_words(run_cli, quick, monkeypatch, place):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(place, interrupted)
    status, _, err = run_cli("fit", *quick)
    assert status == 130
    assert err.endswith("stopped by Ctrl-C\n")
    assert "Traceback" not in err


def test_predict_ends_quietly_where_nobody_reads_on(trained_folder):
    reader, writer = os.pipe()
    os.close(reader)
    words = ("predict", "--ckpt_path", "best", "--data.predict_path", "-")
    done = subprocess.run(
        [sys.executable, REPO / "main.py", *words],
        cwd=trained_folder,
        input="一条新闻\n",
        stdout=writer,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        check=False,
    )
    os.close(writer)
    assert done.returncode == 141, done.stderr
    assert "BrokenPipe" not in done.stderr


@pytest.fixture
def run_unread(run_cli, monkeypatch):
    """Run a command line whose standard output is a pipe that nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", encoding="utf-8") as stream:

        def run(*args):
            with monkeypatch.context() as patched:
                patched.setattr(sys, "stdout", stream)
                return run_cli(*args)

        yield run
        os.dup2(os.open(os.devnull, os.O_WRONLY), writer)  # for what is left in its buffer


def test_fit_goes_on_where_nobody_reads_on(run_unread, quick, tmp_path):
    status, _, err = run_unread("fit", *quick)
    assert status == 141, err
    assert err.count("standard output: Broken pipe; the run goes on without its lines\n") == 1
    assert "Traceback" not in err
    assert (tmp_path / "runs/1/checkpoints/last.ckpt").is_file()
    assert (tmp_path / "runs/1/report/confusion_test.csv").is_file()


def test_the_run_of_a_seed_is_done_where_nobody_reads_on(run_unread, quick, tmp_path, monkeypatch):
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "runs" / "1" / "seed_7"))
    monkeypatch.setattr(seeds, "is_first_process", lambda: False)  # its starter is not there
    assert run_unread("fit", *quick).status == 0


def test_plan_ends_where_nobody_reads_on(run_unread, quick, monkeypatch):
    monkeypatch.setattr(cli, "_is_output_closed", lambda: True)
    with monkeypatch.context() as patched:
        patched.setattr(cli.os, "dup2", lambda *_: None)
        status, _, err = run_unread("plan", *quick)
    assert (status, err) == (141, "")


def test_a_broken_pipe_elsewhere_is_no_quiet_end(monkeypatch):
    def run(_):
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr(cli, "_run", run)
    monkeypatch.setattr(cli, "_is_output_closed", lambda: False)
    with pytest.raises(BrokenPipeError):
        cli.main(["plan"])


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_standard_stream_is_no_obstacle(quick, tmp_path, closed):
    words = shlex.join([sys.executable, str(REPO / "main.py"), "fit", *map(str, quick)])
    process = subprocess.run(
        f"{words} {closed}", shell=True, cwd=tmp_path, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr
    assert (tmp_path / "runs/1/report/report.md").is_file()


INTERRUPTED_IMPORT = """
import os, runpy, signal, sys

class Interrupts:
    def find_spec(self, name, *_):
        if name == "torch":
            sys.meta_path.remove(self)
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except KeyboardInterrupt:
                raise ImportError("as NumPy has it")

sys.meta_path.insert(0, Interrupts())
sys.argv = ["main.py", "fit", "--ckpt_path", "no.ckpt"]
runpy.run_path("main.py", run_name="__main__")
"""


@pytest.mark.parametrize(
    ("rank", "end"),
    [
        pytest.param({}, (130, "stopped by Ctrl-C\n"), id="alone"),
        # which the first process ends, or it would be killed for the end of this one
        pytest.param({"LOCAL_RANK": "1"}, (1, "error: ckpt_path: expected"), id="second"),
    ],
)
def test_ctrl_c_while_a_command_is_loaded(rank, end):
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_IMPORT],
        cwd=REPO,
        env={**os.environ, **rank},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr[: len(end[1])]) == end
    assert "Traceback" not in done.stderr
