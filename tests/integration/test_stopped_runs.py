"""Runs that are killed, told to stop, starved of room or of a process: nothing is lost."""

import contextlib
import json
import os
import pty
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from bert_lightning import checkpoint_io

REPO = Path(__file__).parents[2]
PROCESS_SECONDS = 300  # most that a process may take
TWO = ("--config", "ddp.yaml", "--trainer.devices", "2")
KILLS = {1: 34, 2: 16}
TERMS = {1: 14, 2: 6}
DEATHS = 20
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")


@pytest.fixture
def long_run(news_folder, tiny_bert_folder):
    """Arguments of a fit of 240 steps, with four validations and a save after every tenth step."""
    return [
        *("fit", "--data.path", news_folder, "--model.pretrained", tiny_bert_folder),
        *("--data.batch_size", "4", "--trainer.max_epochs", "15", "--model.dropout", "0.1"),
        *("--trainer.limit_train_batches", "16", "--trainer.val_check_interval", "8"),
        *("--trainer.precision", "32", "--save_every_steps", "5", "--test_after_fit", "false"),
        *("--trainer.callbacks", "[{class_path: slow.Slow}]"),
    ]


@pytest.fixture
def start(tmp_path):
    """Start `main.py` in a group of its own; all of them are ended after the test."""
    started = []
    # a step of the tiny model takes less than what a signal needs to arrive
    (tmp_path / "slow.py").write_text(
        "import time\nfrom lightning.pytorch import Callback\n"
        "class Slow(Callback):\n"
        "    def on_train_batch_start(self, *_):\n        time.sleep(0.01)\n"
        "    def on_validation_batch_start(self, *_):\n        time.sleep(0.01)\n"
        "class Raises(Callback):\n"
        "    def on_train_batch_start(self, trainer, *_):\n"
        "        if trainer.global_rank == 1 and trainer.global_step == 7:\n"
        "            raise RuntimeError('its own words')\n"
        "class Hangs(Callback):\n"
        "    def on_train_batch_start(self, trainer, *_):\n"
        "        if trainer.global_rank == 1 and trainer.global_step == 7:\n"
        "            time.sleep(3600)\n",
        encoding="utf-8",
    )

    def run(*args, env=None):
        output = (tmp_path / f"output_{len(started)}.txt").open("w+", encoding="utf-8")
        process = subprocess.Popen(
            [sys.executable, str(REPO / "main.py"), *map(str, args)],
            cwd=tmp_path,
            env={
                **os.environ,
                "OMP_NUM_THREADS": "1",
                "CUDA_VISIBLE_DEVICES": "",
                "PYTHONPATH": os.pathsep.join([str(tmp_path), str(REPO)]),
                **(env or {}),
            },
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        process.output = output
        started.append(process)
        return process

    yield run
    for process in started:
        kill(process)


def kill(process):
    """End a process and all that it started, at once."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def family_of(process):
    """Return the ids of a process and those it started that are alive, in the order of starting."""
    alive = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            text = file.read_text(encoding="utf-8")
            state, _, group = text.rpartition(")")[2].split()[:3]
            if int(group) == process.pid and state != "Z":
                alive.append(int(file.parent.name))
    return sorted(alive)


def wait_for_the_end_of_all(process):
    until = time.monotonic() + 15
    while family_of(process):
        assert time.monotonic() < until
        time.sleep(0.05)


def text_of(process):
    process.output.seek(0)
    return process.output.read()


def wait_for(process, pattern):
    """Wait until the output matches; False if the process ends before."""
    until = time.monotonic() + PROCESS_SECONDS
    while not re.search(pattern, text_of(process), re.MULTILINE):
        if process.poll() is not None:
            return False
        assert time.monotonic() < until, text_of(process)
        time.sleep(0.02)
    return True


def end_of(process):
    """Return exit status and output."""
    return process.wait(PROCESS_SECONDS), text_of(process)


def weights(run):
    return torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]


def assert_same(one, other):
    assert one.keys() == other.keys()
    for key, value in one.items():
        assert torch.equal(value, other[key]), key


def resume(long_run, number):
    return (
        "fit",
        "--ckpt_path",
        f"runs/{number}",
        *long_run[long_run.index("--trainer.callbacks") :],
    )


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kills", [2, pytest.param(None, marks=pytest.mark.slow)])
def test_a_run_that_is_killed_again_and_again_ends_at_the_same_weights(
    start, long_run, tmp_path, processes, kills
):
    words = TWO if processes == 2 else ()
    status, out = end_of(start(*long_run, *words))
    assert status == 0, out
    dice = random.Random(kills)
    whole, run = weights(tmp_path / "runs" / "1"), tmp_path / "runs" / "2"
    killed, ended, wanted = 0, 0, kills or KILLS[processes]
    while killed < wanted or not ended:
        is_begun = (run / "checkpoints" / "last.ckpt").is_file()
        if not is_begun:
            shutil.rmtree(run, ignore_errors=True)  # killed before it had saved anything
        process = start(*(resume(long_run, 2) if is_begun else long_run), *words)
        if killed < wanted and wait_for(process, "^steps ") and process.poll() is None:
            time.sleep(dice.uniform(0.0, 1.5))
            killed += process.poll() is None
            kill(process)
            continue
        status, out = end_of(process)
        assert status == 0, out
        assert_same(weights(run), whole)
        ended += 1
        shutil.rmtree(run)
    print(f"\n{killed} kills of {processes} processes, {ended} runs with the same weights")


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("times", [1, pytest.param(None, marks=pytest.mark.slow)])
def test_sigterm_saves_within_a_step_and_ends_with_143(start, long_run, tmp_path, processes, times):
    words = TWO if processes == 2 else ()
    status, out = end_of(start(*long_run, *words))
    assert status == 0, out
    dice = random.Random(3)
    again = [*long_run, *words]
    again[again.index("--save_every_steps") + 1] = "100000"
    for _ in range(times or TERMS[processes]):
        process = start(*again)
        assert wait_for(process, "^steps ")
        time.sleep(dice.uniform(0.0, 0.3))
        before = time.monotonic()
        process.send_signal(signal.SIGTERM)
        status, out = end_of(process)
        assert status == 143, out
        assert "Traceback" not in out
        step = re.search(r"stopped   by SIGTERM after step (\d+), saved in runs/2", out)[1]
        kept = torch.load(tmp_path / "runs/2/checkpoints/last.ckpt", weights_only=True)
        assert kept["global_step"] == int(step)
        assert time.monotonic() - before < 20
        again = [*resume(long_run, 2), *words]
    status, out = end_of(start(*again))
    assert status == 0, out
    assert_same(weights(tmp_path / "runs" / "2"), weights(tmp_path / "runs" / "1"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["term", "int"])
def test_a_signal_in_the_test_ends_it_in_words_and_going_on_makes_up_for_it(
    start, run_cli, quick, tmp_path, number
):
    (tmp_path / "tests.py").write_text(
        "import time\nfrom lightning.pytorch import Callback\nclass Tests(Callback):\n"
        "    def on_test_batch_start(self, *_):\n        print('now', flush=True)\n"
        "        time.sleep(60)\n",
        encoding="utf-8",
    )
    process = start("fit", *quick, "--trainer.callbacks", "[{class_path: tests.Tests}]")
    assert wait_for(process, "^now")
    process.send_signal(number)
    status, out = end_of(process)
    assert status == 128 + number, out
    assert f"stopped   by {number.name} at once; the last checkpoint is" in out
    assert "last.ckpt: go on with fit --ckpt_path runs/1\n" in out
    assert "Traceback" not in out
    report = tmp_path / "runs/1/report/report.json"
    before = json.loads(report.read_text("utf-8"))
    assert list(before["results"]) == ["val"]
    status, out, err = run_cli("fit", "--ckpt_path", "last")
    assert status == 0, err
    assert "nothing left to train" in out
    assert "test/macro_f1" in out
    after = json.loads(report.read_text("utf-8"))
    assert list(after["results"]) == ["val", "test"]
    assert (before["stage"], after["stage"]) == ("fit", "test")
    assert after["truncated_rows"] == {**before["truncated_rows"], "test": 0}
    both = ("stage", "truncated_rows", "results")
    assert {**after, **{name: before[name] for name in both}} == before
    assert after["results"]["val"] == before["results"]["val"]
    again = run_cli("fit", "--ckpt_path", "last")
    assert again.status == 0
    assert "test/macro_f1" not in again.out


def test_a_second_ctrl_c_ends_at_once_in_words(start, long_run, tmp_path):
    (tmp_path / "long.py").write_text(
        "import time\nfrom lightning.pytorch import Callback\nclass Long(Callback):\n"
        "    def on_train_batch_start(self, *_):\n        print('now', flush=True)\n"
        "        [time.sleep(0.1) for _ in range(600)]\n",
        encoding="utf-8",
    )
    process = start(*long_run, "--trainer.callbacks", "[{class_path: long.Long}]")
    assert wait_for(process, "^now")
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    status, out = end_of(process)
    assert status == 130, out
    assert "stopped   by SIGINT at once; no checkpoint was written yet: begin again\n" in out
    assert "Traceback" not in out


def test_a_terminal_that_is_closed_saves_and_ends_the_run(start, long_run, tmp_path):
    process, terminal = pty.fork()
    if not process:  # it has a terminal of its own now
        os.chdir(tmp_path)
        os.environ.update(OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="", PYTHONPATH=str(tmp_path))
        os.execv(sys.executable, [sys.executable, str(REPO / "main.py"), *map(str, long_run)])
    shown = b""
    while b"steps  " not in shown:
        shown += os.read(terminal, 4096)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 128 + signal.SIGHUP
    state = torch.load(tmp_path / "runs/1/checkpoints/last.ckpt", weights_only=True)
    assert 0 < state["global_step"] < 240


@pytest.mark.parametrize("devices", [(), TWO], ids=["one", "two"])
def test_sighup_saves_and_ends_with_129(start, long_run, devices):
    process = start(*long_run, *devices)
    assert wait_for(process, "^steps ")
    process.send_signal(signal.SIGHUP)
    status, out = end_of(process)
    assert status == 129, out
    assert "stopped   by SIGHUP after step" in out
    wait_for_the_end_of_all(process)


@pytest.mark.parametrize(
    ("number", "words"),
    [
        pytest.param(signal.SIGINT, "stopped by Ctrl-C\n", marks=pytest.mark.slow),
        (signal.SIGTERM, "stopped by SIGTERM\n"),
    ],
    ids=["int", "term"],
)
def test_a_signal_before_the_training_of_two_processes_ends_both(
    start, long_run, tmp_path, number, words
):
    process = start(*long_run, *TWO)
    assert wait_for(process, "^batch ")
    while len(family_of(process)) < 2:
        assert process.poll() is None, text_of(process)
        time.sleep(0.01)
    time.sleep(0.3)  # the second is loading
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # as a terminal does
    else:
        process.send_signal(number)
    status, out = end_of(process)
    assert status == 128 + number, out
    assert out.endswith(words)
    assert "Traceback" not in out
    assert not (tmp_path / "runs").exists()
    wait_for_the_end_of_all(process)


def test_sigusr1_saves_and_goes_on_and_ctrl_c_ends_with_130(start, long_run, tmp_path):
    process = start(*long_run)
    assert wait_for(process, "^steps ")
    process.send_signal(signal.SIGUSR1)
    assert wait_for(process, r"saved     on SIGUSR1 after step \d+, in runs/1; the run goes on")
    process.send_signal(signal.SIGINT)
    status, out = end_of(process)
    assert status == 130, out
    assert "stopped   by SIGINT" in out
    assert "Traceback" not in out


@pytest.mark.slow
def test_under_slurm_a_job_is_requeued_and_goes_on_by_the_same_command(start, long_run, tmp_path):
    scontrol = tmp_path / "bin" / "scontrol"
    scontrol.parent.mkdir()
    scontrol.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\n', encoding="utf-8")
    scontrol.chmod(0o755)
    job = {
        "PATH": f"{scontrol.parent}{os.pathsep}{os.environ['PATH']}",
        **{"SLURM_JOB_ID": "77", "SLURM_JOB_NAME": "news", "SLURM_NTASKS": "1"},
        **{"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0"},
    }
    process = start(*long_run, env=job)
    assert wait_for(process, "^steps ")
    process.send_signal(signal.SIGUSR1)
    status, out = end_of(process)
    assert status == 0, out
    assert "requeued  on SIGUSR1 after step" in out
    assert (tmp_path / "asked").read_text() == "requeue 77\n"
    status, out = end_of(start(*long_run, env={**job, "SLURM_RESTART_COUNT": "1"}))
    assert status == 0, out
    assert "resume    from runs/1/checkpoints/last.ckpt, trained in 32-true, after step" in out
    assert [run.name for run in (tmp_path / "runs").iterdir()] == ["1"]


@pytest.mark.parametrize("times", [1, pytest.param(DEATHS // 2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("victim", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_a_process_that_dies_ends_the_whole_run(start, long_run, tmp_path, victim, times):
    seconds = []
    for _ in range(times):
        process = start(*long_run, *TWO)
        assert wait_for(process, "^steps ")
        family = family_of(process)
        assert len(family) == 2
        before = time.monotonic()
        os.kill(family[victim], signal.SIGKILL)
        status, out = end_of(process)
        assert status != 0, out
        wait_for_the_end_of_all(process)
        seconds.append(time.monotonic() - before)
        if victim == 1:
            assert "process 1 was ended by SIGKILL" in out
            assert "Traceback" not in out
        shutil.rmtree(tmp_path / "runs")
    figures = f"{min(seconds):.1f}–{max(seconds):.1f} s"
    print(f"\nprocess {victim} killed {len(seconds)} times, all ended in {figures}")
    assert max(seconds) < 15


def test_an_error_of_one_process_ends_the_whole_run_and_is_on_the_screen(start, long_run):
    process = start(*long_run, *TWO, "--trainer.callbacks+=slow.Raises")
    status, out = end_of(process)
    assert status == 1, out
    assert "RuntimeError: its own words" in out
    assert "process 1 ended with status 1; its own words stand above" in out
    wait_for_the_end_of_all(process)


@pytest.mark.slow
def test_a_process_that_hangs_ends_the_whole_run_within_the_timeout(start, long_run):
    strategy = "{class_path: DDPStrategy, init_args: {timeout: '0:00:10'}}"
    words = ("--trainer.devices", "2", "--trainer.strategy", strategy)
    process = start(*long_run, *words, "--trainer.callbacks+=slow.Hangs")
    status, out = end_of(process)
    assert status == 1, out
    assert "process 1 was silent for longer than the timeout of trainer.strategy" in out
    assert "Traceback" not in out
    wait_for_the_end_of_all(process)


def test_a_full_disk_ends_the_run_in_words_and_leaves_the_last_checkpoint(
    run_cli, quick, tmp_path, monkeypatch
):
    assert run_cli("fit", *quick).status == 0
    last = tmp_path / "runs" / "1" / "checkpoints" / "last.ckpt"
    before = last.read_bytes()
    usage = shutil.disk_usage(tmp_path)
    full = type(usage)(usage.total, usage.total - 1000, 1000)
    monkeypatch.setattr(checkpoint_io.shutil, "disk_usage", lambda _: full)
    status, _, err = run_cli("fit", "--ckpt_path", "last", "--trainer.max_epochs", "2")
    assert status == 1
    assert "expected 4 MiB free for a checkpoint – found 0 MiB" in err
    assert "go on with fit --ckpt_path runs/1" in err
    assert last.read_bytes() == before
    assert not list(last.parent.glob("*.tmp"))


def test_a_damaged_last_gives_way_to_the_state_before(run_cli, quick, tmp_path):
    words = ("fit", *quick, "--trainer.max_epochs", "2")
    assert run_cli(*words).status == 0
    last = tmp_path / "runs" / "1" / "checkpoints" / "last.ckpt"
    whole = weights(last.parent.parent)
    content = bytearray(last.read_bytes())
    content[len(content) // 2] ^= 4
    damaged = last.with_name("copy")  # best.ckpt may be the same file
    damaged.write_bytes(content)
    damaged.replace(last)
    last.with_name("best.ckpt").unlink(missing_ok=True)
    status, out, err = run_cli("fit", "--ckpt_path", "last")
    assert status == 0, err
    assert "last.ckpt is damaged, its checksum is another: from previous.ckpt instead" in out
    assert_same(weights(last.parent.parent), whole)
    assert last.with_suffix(".damaged").read_bytes() == content


@pytest.mark.parametrize("hook", ["setup", "on_fit_start", "on_sanity_check_start"])
def test_what_ends_before_it_has_begun_leaves_no_run(run_cli, quick, tmp_path, monkeypatch, hook):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / f"early_{hook}.py").write_text(
        "from lightning.pytorch import Callback\nclass Early(Callback):\n"
        f"    def {hook}(self, *_, **__):\n        raise KeyboardInterrupt\n",
        encoding="utf-8",
    )
    callback = f"[{{class_path: early_{hook}.Early}}]"
    words = ["--trainer.callbacks", callback, "--trainer.num_sanity_val_steps", "1"]
    result = run_cli("fit", *quick, *words)
    assert result.status == 130, result.err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("hook", ["setup", "on_sanity_check_start"])
@pytest.mark.parametrize("left", [("checkpoints",), ("checkpoints", "report", "metrics.csv")])
def test_what_a_run_already_holds_is_never_taken_back(
    run_cli, trained_folder, tmp_path, monkeypatch, hook, left
):
    """Only some of a run were copied, its config.yaml not, and going on ends before a step."""
    run = tmp_path / "runs" / "1"
    for path in (trained_folder / "runs" / "1").iterdir():
        if path.name in left:
            copy = shutil.copytree if path.is_dir() else shutil.copyfile
            run.mkdir(parents=True, exist_ok=True)
            copy(path, run / path.name)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert len(before) >= 2
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / f"soon_{hook}.py").write_text(
        "from lightning.pytorch import Callback\nclass Soon(Callback):\n"
        f"    def {hook}(self, *_, **__):\n        raise KeyboardInterrupt\n",
        encoding="utf-8",
    )
    words = ["--data.path", trained_folder / "news", "--trainer.max_epochs", "3"]
    words += ["--trainer.callbacks", f"[{{class_path: soon_{hook}.Soon}}]"]
    words += ["--trainer.num_sanity_val_steps", "1"]
    result = run_cli("fit", "--ckpt_path", run, *words)
    assert result.status == 130, result.err
    assert {path: path.read_bytes() for path in before} == before
    assert list(run.glob("config*.yaml")) == []  # those of what has not begun


def test_going_on_that_ends_before_it_has_begun_leaves_no_config(
    run_cli, trained_folder, tmp_path, monkeypatch
):
    shutil.copytree(trained_folder / "runs", tmp_path / "runs")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "at_once.py").write_text(
        "from lightning.pytorch import Callback\nclass AtOnce(Callback):\n"
        "    def on_fit_start(self, *_, **__):\n        raise KeyboardInterrupt\n",
        encoding="utf-8",
    )
    words = ["--data.path", trained_folder / "news", "--trainer.max_epochs", "3"]
    result = run_cli(
        *("fit", "--ckpt_path", "last", *words),
        *("--trainer.callbacks", "[{class_path: at_once.AtOnce}]"),
    )
    assert result.status == 130, result.err
    assert [file.name for file in (tmp_path / "runs" / "1").glob("config*")] == ["config.yaml"]


@pytest.mark.parametrize(
    ("devices", "number"),
    [((), signal.SIGTERM), ((), signal.SIGINT), (TWO, signal.SIGTERM)],
    ids=["term", "int", "term_two"],
)
def test_a_signal_after_the_last_save_ends_the_run_before_its_test(
    start, quick, tmp_path, devices, number
):
    (tmp_path / "late.py").write_text(
        "import os\nfrom lightning.pytorch import Callback\nclass Late(Callback):\n"
        "    def on_train_end(self, trainer, *_):\n"
        f"        if trainer.is_global_zero:\n            os.kill(os.getpid(), {int(number)})\n",
        encoding="utf-8",
    )
    process = start("fit", *quick, *devices, "--trainer.callbacks", "[{class_path: late.Late}]")
    status, out = end_of(process)
    assert status == 128 + number, out
    assert f"stopped   by {number.name} after step" in out
    assert "test/loss" not in out
    wait_for_the_end_of_all(process)
