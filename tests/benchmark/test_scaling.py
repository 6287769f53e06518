import json
import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from bert_lightning.benchmark import scaling, scaling_checks
from bert_lightning.benchmark.scaling_tables import as_markdown, efficiency
from bert_lightning.benchmark.stopwatch import ProcessTimer

SPEED = {"samples_per_second": 100.0, "allocated_gib": 1.5, "steps": 4, "execution": "compiled"}


def row(devices=1, cell="ddp", group="headlines-32", **more):
    key = {"group": group, "cell": cell, "devices": devices, "environment": {"device": "H200"}}
    return {**key, "call": "now", **SPEED, **more}


def test_efficiency_is_that_of_the_same_strategy_and_execution():
    one = row()
    captured = row(cell="no strategy", samples_per_second=400.0, execution="captured")
    two = row(2, samples_per_second=180.0)
    assert efficiency(two, [captured, one, two]) == pytest.approx(0.9)
    assert efficiency(two, [captured, two]) is None
    assert efficiency(two, [{**one, "execution": "eager"}]) is None
    failed = {key: one[key] for key in one if key not in SPEED} | {"reason": "out of memory"}
    assert efficiency(two, [failed, two]) is None


def test_tables_show_speeds_failures_and_checks():
    check = {"expected": "2000 rows", "found": "1999", "holds": False}
    absent = row(8, reason="needs 8 CUDA devices, found 1")
    text = as_markdown(
        [row(), row(2, samples_per_second=1234.5), absent, row(2, "counts", "checks", **check)]
    )
    assert "| ddp | 2 | 1,234 | 6.17 | compiled | 1.50 | 4 |" in text
    assert "| ddp | 8 | needs 8 CUDA devices, found 1 |" in text
    assert "| counts | 2 | 2000 rows | 1999 | **no** |" in text


def test_speeds_of_processes_add_and_the_most_memory_counts():
    extent = {"warmup": 1, "steps": 4, "seconds": 1e9, "repeats": 1}
    times = {"pieces_per_second": 10, "seconds": 1.0, "first_step_seconds": 2.0, "steps": 4}
    processes = [
        {**times, "extent": extent, "samples_per_second": rate, "allocated_gib": gib}
        | {"reserved_gib": None}
        for rate, gib in ((10.0, 1.0), (11.0, 2.0))
    ]
    result = scaling.together(processes, "compiled")
    assert result["samples_per_second"] == 21.0
    assert result["allocated_gib"] == 2.0
    assert result["reserved_gib"] is None
    assert result["execution"] == "compiled"


def test_without_enough_devices_the_reason_is_told(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(scaling, "LOADS", scaling.LOADS[:1])
    scaling.main(["--devices", "4", "--strategies", "ddp", "--output", str(tmp_path)])
    stored = json.loads((tmp_path / "scaling.json").read_text("utf-8"))["results"]
    assert len(stored) == 1 + len(scaling_checks.CHECKS)
    assert {row["reason"] for row in stored} == {"needs 4 CUDA devices, found 1"}
    assert (tmp_path / "scaling.md").read_text("utf-8") == capsys.readouterr().out


@pytest.mark.parametrize("word", ["0", "-1"])
def test_numbers_of_devices_below_one_are_refused(word, capsys):
    with pytest.raises(SystemExit):
        scaling.main(["--devices", "1", word])
    assert f"--devices: expected 1 or more – found {word}" in capsys.readouterr().err


def test_a_process_writes_a_file_of_its_own(tmp_path):
    class Trainer:
        global_rank = 3

    timer = ProcessTimer(0.0, str(tmp_path / "measured.json"), 1, 2)
    timer.setup(Trainer(), None, "fit")
    assert timer.watch.output == tmp_path / "measured.3.json"
    assert timer.watch.extent.repeats == 1


@pytest.mark.slow
def test_two_processes_on_a_cpu_are_measured_and_checked(monkeypatch, tmp_path):
    monkeypatch.setattr(scaling, "LOADS", scaling.LOADS[:1])
    scaling.main(["--small", "--strategies", "ddp", "--output", str(tmp_path)])
    stored = json.loads((tmp_path / "scaling.json").read_text("utf-8"))["results"]
    assert not [row["reason"] for row in stored if "reason" in row]
    assert [row["devices"] for row in stored[:2]] == [1, 2]
    assert efficiency(stored[1], stored) > 0
    assert [row["holds"] for row in stored[2:]] == [True] * len(scaling_checks.CHECKS)


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
def test_the_processes_of_a_job_are_found_while_they_live():
    words = [sys.executable, "-c", "import time; time.sleep(60)"]
    job = subprocess.Popen(words, start_new_session=True)
    assert scaling_checks._family(job.pid) == [job.pid]
    os.killpg(job.pid, signal.SIGKILL)
    until = time.monotonic() + 10
    while scaling_checks._family(job.pid) and time.monotonic() < until:
        time.sleep(0.01)
    assert scaling_checks._family(job.pid) == []  # not yet waited for: dead all the same
    job.wait()
