import sys
import time

import pytest

from bert_lightning.benchmark import case_runs
from bert_lightning.benchmark.case_runs import run_case, run_words
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
    result = run_case(Case("fp32", batch=32), SUBJECT, lambda: None)
    assert result["reason"] == expected
    assert result["process_seconds"] >= 0


def test_a_case_that_hangs_is_ended(program, monkeypatch):
    program("import time; time.sleep(300)")
    monkeypatch.setattr(case_runs, "CASE_SECONDS", 1)
    monkeypatch.setattr(case_runs, "TICK_SECONDS", 0.1)
    ticks = []
    result = run_case(Case("fp32", batch=32), SUBJECT, lambda: ticks.append(1))
    assert result["reason"] == "not done after 1 s"
    assert len(ticks) > 3


def test_a_process_that_was_left_behind_ends_with_its_case(program, tmp_path):
    child = "import pathlib, time; time.sleep(1); pathlib.Path('late').touch()"
    start = f"subprocess.Popen([sys.executable, '-c', {child!r}], cwd=sys.argv[1])"
    program(f"import subprocess, sys; {start}")
    status, errors = run_words([str(tmp_path)], tmp_path, lambda: None, None)
    assert (status, errors) == (0, "")
    time.sleep(1.5)
    assert not (tmp_path / "late").exists()


def test_each_case_has_one_device_and_this_very_package(program, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,4")
    program("import os, bert_lightning as b; print(os.environ['CUDA_VISIBLE_DEVICES'], b.__file__)")
    run_words([], tmp_path, lambda: None, None)
    device, file = (tmp_path / "said.txt").read_text(encoding="utf-8").split()
    assert device == "3"
    assert file == sys.modules["bert_lightning"].__file__
