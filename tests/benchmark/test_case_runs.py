import sys
import time

import pytest

from bert_lightning.benchmark import case_runs
from bert_lightning.benchmark.case_runs import Processes, ReadyProcess, run_case
from bert_lightning.benchmark.cases import Case, Subject
from bert_lightning.benchmark.stopwatch import Extent

SUBJECT = Subject((), 32, 128, Extent())
ENDS = "import sys; print('{}', file=sys.stderr); sys.exit({})"


@pytest.fixture
def program(monkeypatch):
    """Sets what runs in the place of the project's commands."""

    def install(text):
        monkeypatch.setattr(case_runs, "PROGRAM", (sys.executable, "-c", text))

    return install


@pytest.mark.parametrize(
    ("said", "status", "expected"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried", 1, "out of memory"),
        ("error: data.path: no folder at /home/me/news", 1, "error: data.path: no folder at news"),
        ("", 1, "ended before all was measured"),
    ],
)
def test_a_case_that_fails_is_a_row_with_its_reason(said, status, expected, program):
    program(ENDS.format(said, status))
    result = run_case(Case("fp32", batch=32), SUBJECT, ReadyProcess(), lambda: None)
    assert result["reason"] == expected
    assert result["process_seconds"] >= 0


def test_a_case_that_hangs_is_ended(program, monkeypatch):
    program("import time; time.sleep(300)")
    monkeypatch.setattr(case_runs, "CASE_SECONDS", 1)
    monkeypatch.setattr(case_runs, "TICK_SECONDS", 0.1)
    ticks = []
    result = run_case(Case("fp32", batch=32), SUBJECT, ReadyProcess(), lambda: ticks.append(1))
    assert result["reason"] == "not done after 1 s"
    assert len(ticks) > 3


def test_a_process_that_was_left_behind_ends_with_its_case(program, tmp_path):
    child = "import pathlib, time; time.sleep(1); pathlib.Path('late').touch()"
    start = f"subprocess.Popen([sys.executable, '-c', {child!r}], cwd={str(tmp_path)!r})"
    program(f"import subprocess, sys; {start}")
    with ReadyProcess() as process:
        assert process.run([], lambda: None, None) == (0, "")
    time.sleep(1.5)
    assert not (tmp_path / "late").exists()


def test_each_case_has_one_device_and_this_very_package(program, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,4")
    program("import os, bert_lightning as b; print(os.environ['CUDA_VISIBLE_DEVICES'], b.__file__)")
    with ReadyProcess() as process:
        process.run([], lambda: None, None)
        device, file = (process.folder / "said.txt").read_text(encoding="utf-8").split()
    assert device == "3"
    assert file == sys.modules["bert_lightning"].__file__


def _is_alive(process):
    return process._process.poll() is None


@pytest.mark.parametrize("ahead", [True, False])
def test_the_next_process_gets_ready_while_one_runs(program, ahead):
    program("import time; time.sleep(300)")
    with Processes(ahead) as processes:
        with processes.take() as first:
            following = processes._next
            assert (following is not None) is ahead
        assert not _is_alive(first)
        with processes.take(more=False) as second:
            assert second is following or not ahead
            assert _is_alive(second)
            assert processes._next is None
        third = processes.take()
        left = processes._next
        with third:
            pass
    assert left is None or not _is_alive(left)


def test_the_leash_waits_for_its_command_and_ends_without_one():
    with ReadyProcess() as process:
        assert process.run(["fit", "--data.path", "/nowhere"], lambda: None, None)[0] == 1
        assert "/nowhere" in (process.folder / "errors.txt").read_text(encoding="utf-8")
    with ReadyProcess() as process:
        process._process.stdin.close()
        process._process.stdin = None
        assert process._process.wait(60) == 0
