import os
import re
import subprocess
import sys
import time

import pytest
import torch
import torch.distributed as dist
from lightning.fabric.strategies.launchers.subprocess_script import _ChildProcessObserver

from bert_lightning import failures
from bert_lightning.checkpoint import way_on
from bert_lightning.errors import TrainingError
from bert_lightning.failures import told_in_words

CUDA = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 139 GiB of which"
    " 1.2 GiB is free. Including non-PyTorch memory, this process has 138 GiB memory in use."
)
BLAS = "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"
KILLED = "DataLoader worker (pid 4711) is killed by signal: Killed. "
GONE = "DataLoader worker (pid(s) 4711, 4712) exited unexpectedly"
SHARED = (
    "DataLoader worker (pid 4711) is killed by signal: Bus error. It is possible that dataloader's"
    " workers are out of shared memory. Please try to raise your shared memory limit."
)


def told(error, run=None):
    with pytest.raises(TrainingError) as caught, told_in_words(32, run):
        raise error
    assert caught.value.__cause__ is error
    return str(caught.value)


@pytest.mark.parametrize(
    ("error", "found"),
    [
        (torch.OutOfMemoryError(CUDA), "CUDA out of memory. Tried to allocate 2.00 GiB\n"),
        (RuntimeError(BLAS), "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when"),
        (MemoryError(), "none left\n"),
        (MemoryError("Unable to allocate 8 EiB"), "Unable to allocate 8 EiB\n"),
    ],
)
def test_no_memory_is_told_with_what_to_try(error, found):
    text = told(error)
    assert f"data.batch_size: expected memory for 32 rows at once – found: {found}" in text
    for way in ("--data.batch_size", "--find_batch.enabled", "lowmem.yaml", "--data.max_length"):
        assert way in text


def test_what_torch_says_of_the_memory_of_a_machine_is_known():
    with pytest.raises(TrainingError) as caught, told_in_words(8, None):
        torch.empty(1 << 50)
    assert "memory for 8 rows at once – found: DefaultCPUAllocator: can't" in str(caught.value)
    assert "enforce fail" not in str(caught.value)


@pytest.mark.parametrize("text", [KILLED, GONE, SHARED])
def test_a_worker_that_died_is_told_with_what_to_do(text):
    said = told(RuntimeError(text))
    assert "data.num_workers: expected its processes to live – found: DataLoader worker" in said
    assert "4711" in said
    assert "--data.num_workers 0" in said
    assert "memory" in said


@pytest.mark.parametrize("error", [RuntimeError("shapes differ"), ValueError("CUDA out of memory")])
def test_other_errors_are_left_alone(error):
    with pytest.raises(type(error), match=re.escape(str(error))), told_in_words(32, None):
        raise error


def test_the_way_on_names_the_last_checkpoint_if_there_is_one(tmp_path):
    assert told(MemoryError(), tmp_path).endswith("no checkpoint was written yet: begin again")
    last = tmp_path / "checkpoints" / "last.ckpt"
    last.parent.mkdir()
    last.touch()
    assert told(MemoryError(), tmp_path).endswith(
        f"the last checkpoint is {last}: go on with fit --ckpt_path {tmp_path}"
    )
    assert "checkpoint" not in told(MemoryError())
    assert way_on(tmp_path, 2).endswith(f"--ckpt_path {tmp_path} and the same strategy and devices")


# --- through the command line -------------------------------------------------------------------

STRIKES = """
import errno, os, shutil, signal
import torch
from lightning.pytorch import Callback

class Kills(Callback):
    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        if trainer.global_step == 2:
            os.kill(trainer.train_dataloader._iterator._workers[0].pid, signal.SIGKILL)

class Fills(Callback):
    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        if trainer.global_step == 2:
            torch.empty(1 << 50)

class Raises(Callback):
    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        if trainer.global_step == 2:
            raise RuntimeError("its own words")

class Writes(Callback):
    names = ()
    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        if trainer.global_step == 2:
            raise OSError(errno.ENOSPC, "No space left on device", *self.names)

class WritesNamed(Writes):
    names = ("elsewhere.txt",)

class Removes(Callback):
    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        if trainer.global_step == 2:
            shutil.rmtree("runs")

class FillsTest(Callback):
    def on_test_batch_start(self, *_):
        torch.empty(1 << 50)
"""


@pytest.fixture
def strikes(tmp_path, monkeypatch):
    (tmp_path / "strikes.py").write_text(STRIKES, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


def callback(name):
    return ("--trainer.callbacks", f"[{{class_path: strikes.{name}}}]")


def test_a_worker_that_is_killed_ends_the_run_in_words(run_process, quick, tmp_path, strikes):
    status, out, err = run_process(
        *("fit", *quick, *callback("Kills"), "--data.num_workers", "2"),
        *("--trainer.limit_train_batches", "8", "--save_every_steps", "1"),
    )
    assert status == 1, out + err
    assert "error: data.num_workers: expected its processes to live – found: DataLoader" in err
    assert "the last checkpoint is runs/1/checkpoints/last.ckpt: go on with fit" in err
    assert "Traceback" not in out + err
    status, _, err = run_process("fit", "--ckpt_path", "last", "--data.num_workers", "0")
    assert status == 0, err


def test_no_memory_ends_the_run_in_words_and_with_less_it_goes_on(run_cli, quick, strikes):
    status, out, err = run_cli(
        *("fit", *quick, *callback("Fills"), "--trainer.limit_train_batches", "4"),
        *("--save_every_steps", "1"),
    )
    assert status == 1
    assert "error: data.batch_size: expected memory for 8 rows at once" in err
    assert "the last checkpoint is runs/1/checkpoints/last.ckpt: go on with fit" in err
    assert "Traceback" not in out + err
    status, _, err = run_cli("fit", "--ckpt_path", "runs/1")
    assert status == 0, err


def test_no_room_on_another_disk_is_not_said_of_the_run(run_cli, quick, strikes):
    words = ("--trainer.limit_train_batches", "4", "--save_every_steps", "1")
    for name, said in (
        ("WritesNamed", "error: elsewhere.txt: expected room"),
        ("Writes", "in on_train_batch_start\n"),
    ):
        status, _, err = run_cli("fit", *quick, *callback(name), *words)
        assert status == 1
        assert said in err
        assert "default_root_dir" not in err
        assert "go on with fit" in err


def test_an_error_of_others_ends_with_the_way_on_beneath_its_traceback(run_cli, quick, strikes):
    status, _, err = run_cli(
        *("fit", *quick, *callback("Raises"), "--trainer.limit_train_batches", "4"),
        *("--save_every_steps", "1"),
    )
    assert status == 1
    *_, error, way = err.splitlines()
    assert error == "RuntimeError: its own words"
    assert way.startswith("the last checkpoint is runs/1/checkpoints/last.ckpt: go on with fit")


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["--save_every_steps", "1"], id="at a save"),
        pytest.param([], id="at the report"),
        pytest.param(["--trainer.log_every_n_steps", "1"], id="at a line of metrics"),
    ],
)
def test_a_run_whose_folder_is_removed_ends_in_words_and_leaves_none(
    run_cli, quick, strikes, tmp_path, words
):
    status, _, err = run_cli(
        *("fit", *quick, *callback("Removes"), "--trainer.limit_train_batches", "4", *words)
    )
    assert status == 1
    assert "error: runs/1: expected the folder of the run – found that it was removed" in err
    assert "Traceback" not in err
    assert not (tmp_path / "runs").exists()


def test_no_memory_in_a_test_is_told_too(run_cli, trained_folder, tmp_path, strikes):
    best = trained_folder / "runs" / "1" / "checkpoints" / "best.ckpt"
    words = ("test", "--ckpt_path", best, "--data.path", trained_folder / "news")
    status, _, err = run_cli(*words, *callback("FillsTest"))
    assert status == 1
    assert "expected memory for 8 rows at once" in err
    assert "go on with fit" not in err


GLOO = (
    "[/w/gloo/transport/tcp/pair.cc:537] Read error [127.0.0.1]:4711: Connection reset by peer."
    " This is typically caused by a remote worker crashing. Check its logs."
)


class Launcher:
    """As Lightning's, with processes that run a line of Python each."""

    def __init__(self, *lines):
        self.procs = [subprocess.Popen([sys.executable, "-c", line]) for line in lines]


@pytest.mark.parametrize("error", [RuntimeError(GLOO), dist.DistBackendError("NCCL: timed out")])
def test_how_each_process_ended_is_told_and_none_goes_on(error, monkeypatch):
    monkeypatch.setattr(failures, "_LAST_WORDS_SECONDS", 2.0)
    launcher = Launcher(
        "import os; os.kill(os.getpid(), 9)", "raise SystemExit(1)", "import time; time.sleep(99)"
    )
    started = launcher.procs.copy()
    with pytest.raises(TrainingError) as caught, told_in_words(32, None, launcher):
        raise error
    first, *ends = str(caught.value).splitlines()
    assert first.startswith("processes: expected all to answer – found: ")
    assert "pair.cc" not in first
    assert ends == [
        "process 1 was ended by SIGKILL, as the system does where memory runs out",
        "process 2 ended with status 1; its own words stand above",
        "process 3 was silent for longer than the timeout of trainer.strategy",
    ]
    assert [process.wait(10) for process in started] == [-9, 1, -9]


def test_a_process_that_started_none_says_what_it_can():
    said = told(RuntimeError(GLOO))
    assert "Read error [127.0.0.1]:4711: Connection reset by peer" in said
    assert "another process has ended: its own words, if it had time for any, stand above" in said


def test_a_stop_ends_what_was_started_at_once():
    launcher = Launcher("import time; time.sleep(99)")
    (started,) = launcher.procs
    before = time.monotonic()
    with pytest.raises(SystemExit), told_in_words(32, None, launcher):
        raise SystemExit(143)
    assert time.monotonic() - before < failures._LAST_WORDS_SECONDS / 2
    assert started.wait(10) == -9


def test_the_observer_of_lightning_watches_the_list_that_is_emptied():
    launcher = Launcher("raise SystemExit(3)")
    started, procs = launcher.procs[0], launcher.procs
    started.wait(10)
    with pytest.raises(SystemExit), told_in_words(32, None, launcher):
        raise SystemExit(1)
    assert _ChildProcessObserver(os.getpid(), procs)._run() is True  # nothing left to watch
