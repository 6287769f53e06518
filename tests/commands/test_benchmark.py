import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml

from bert_lightning.benchmark import case_runs
from bert_lightning.commands import benchmark as command

REPO = Path(__file__).parents[2]
FAKE = REPO / "tests" / "benchmark" / "fake_fit.py"
CONFIG = {
    "cpu_cases": {"equal_batch": {"bucketed": ["fp32", "bf16-mixed"]}},
    "accuracy": ["fp32"],
    "claims": [{"epoch time": "-40%", "of": "bf16-mixed"}],
    "cpu_claims": [{"epoch time": "-60%", "of": "bf16-mixed"}],
    "data": {"batch_size": 32},
}
WITH_FAKE = f"""
import sys
from bert_lightning.benchmark import case_runs
from bert_lightning.commands import benchmark as command
case_runs.PROGRAM = (sys.executable, {str(FAKE)!r})
command.cpu_computes_bf16 = lambda: True
command.torch.cuda.is_available = lambda: False
from bert_lightning.cli import main
sys.exit(main())
"""
SECONDS = 60


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder to work in, where cases are measured by the fake."""
    monkeypatch.setenv("FAKE_FIT", str(tmp_path))
    monkeypatch.setattr(case_runs, "PROGRAM", (sys.executable, str(FAKE)))
    monkeypatch.setattr(command, "cpu_computes_bf16", lambda: True)
    monkeypatch.setattr(command.torch.cuda, "is_available", lambda: False)
    (tmp_path / "hang").write_text("", encoding="utf-8")
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(CONFIG), encoding="utf-8")
    return tmp_path


def _ran(place):
    file = place / "cases"
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    file.unlink(missing_ok=True)
    return lines


def _stored(place):
    return json.loads((place / "benchmark" / "benchmark.json").read_text(encoding="utf-8"))


def test_all_forms_are_written_and_claims_are_judged(place, run_cli):
    status, out, err = run_cli("benchmark", "--config", "small.yaml", cwd=place)
    assert status == 0, err
    assert _ran(place) == ["32 timed", "bf16-mixed timed"]
    names = {file.name for file in (place / "benchmark").iterdir()}
    assert names == {f"benchmark.{kind}" for kind in ("json", "md", "csv", "html", "png")}
    stored = _stored(place)
    assert [claim["verdict"] for claim in stored["claims"]] == ["holds", "fails"]
    assert [row["epoch_seconds"] for row in stored["results"]] == [20.0, 10.0]
    rows = list(csv.DictReader((place / "benchmark" / "benchmark.csv").open(encoding="utf-8-sig")))
    assert [row["variant"] for row in rows] == ["fp32", "bf16-mixed"]
    assert "2 to run" in out


def test_a_second_call_measures_only_what_is_missing(place, run_cli):
    line = ("benchmark", "--config", "small.yaml")
    run_cli(*line, cwd=place)
    _ran(place)
    status, out, _ = run_cli(*line, "--accuracy_seeds", "[4,5]", cwd=place)
    assert status == 0
    assert _ran(place) == ["32 4", "32 5"]
    assert "2 of 4 cases are kept from an earlier call, 2 to run" in out
    assert [row.get("accuracy") for row in _stored(place)["results"]] == [None, None, 0.9, 0.9]
    run_cli(*line, "--steps", "7", cwd=place)
    assert _ran(place) == ["32 timed", "bf16-mixed timed"]


def test_results_of_other_settings_are_left_alone(place, run_cli):
    run_cli("benchmark", "--config", "small.yaml", cwd=place)
    before = _stored(place)
    _ran(place)
    line = ("benchmark", "--config", "small.yaml", "--data.batch_size", "8")
    status, _, err = run_cli(*line, cwd=place)
    assert status == 1
    assert "settings 'batch 32, max_length 128' instead of 'batch 8, max_length 128'" in err
    assert _ran(place) == []
    assert _stored(place) == before


def test_no_file_names_a_folder_of_this_machine(place, run_cli):
    line = ("benchmark", "--config", "small.yaml", "--data.path", place / "news")
    status, _, err = run_cli(*line, f"--model.pretrained={place / 'base'}", cwd=place)
    assert status == 0, err
    for file in (place / "benchmark").glob("benchmark.[jmch]*"):
        assert str(place) not in file.read_text(encoding="utf-8")
    words = _stored(place)["results"][0]["command"]
    assert "--data.path news --model.pretrained=base" in words
    assert words.startswith("fit ")


def test_all_faults_of_the_settings_are_told_at_once(place, run_cli):
    line = ("benchmark", "--steps", "0", "--accuracy", "[fp64]", "--claims", "[{speed: -1%}]")
    line += ("--cpu_claims", "[{speed: -1%}]")
    status, _, err = run_cli(*line, cwd=place)
    assert status == 1
    for found in (
        "steps: expected",
        "'fp64'",
        "\nclaims, number 1: expected one",
        "cpu_claims, number 1: expected",
    ):
        assert found in err
    assert not (place / "benchmark").exists()


def test_what_every_case_sets_is_not_taken_and_then_ignored(place, run_cli):
    (place / "mixed.yaml").write_text("trainer: {precision: 16-mixed}", encoding="utf-8")
    line = ("benchmark", "--config", "mixed.yaml", "--trainer.devices", "2")
    status, _, err = run_cli(*line, cwd=place)
    assert status == 1
    assert "trainer.precision: expected not to be set, as every case sets it" in err
    assert "trainer.devices: expected not to be set" in err
    assert _ran(place) == []


def test_a_machine_that_can_measure_no_case_is_told(place, run_cli):
    status, _, err = run_cli("benchmark", "--cpu_cases", "{}", cwd=place)
    assert status == 1
    assert "cpu_cases: expected a case that this machine can measure – found none" in err
    assert not (place / "benchmark").exists()


def _wait_for(is_true):
    begun = time.monotonic()
    while not is_true():
        assert time.monotonic() - begun < SECONDS
        time.sleep(0.05)


def _is_alive(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    file = Path(f"/proc/{process}/stat")  # where no one reaps orphans they stay as zombies
    return not file.is_file() or file.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)]
)
def test_however_it_ends_nothing_runs_on_and_nothing_is_lost(number, status, place, run_cli):
    (place / "hang").write_text("bf16-mixed timed", encoding="utf-8")
    line = ("benchmark", "--config", "small.yaml")
    process = subprocess.Popen(
        [sys.executable, "-c", WITH_FAKE, *line],
        cwd=place,
        # results of another number of threads would be refused below
        env={
            **os.environ,
            "PYTHONPATH": str(REPO),
            "OMP_NUM_THREADS": str(torch.get_num_threads()),
        },
        stdout=subprocess.PIPE,
        text=True,
    )
    pid = place / "pid"
    _wait_for(lambda: pid.is_file() and pid.read_text())
    process.send_signal(number)
    process.communicate(timeout=SECONDS)
    assert process.returncode == status
    _wait_for(lambda: not _is_alive(int(pid.read_text())))
    rows = _stored(place)["results"]
    assert rows[0]["samples_per_second"] == 100.0
    assert [row["reason"] for row in rows[1:]] == ["interrupted"] * (number != signal.SIGKILL)
    assert _ran(place) == ["32 timed", "bf16-mixed timed"]
    (place / "hang").write_text("", encoding="utf-8")
    status, out, _ = run_cli(*line, cwd=place)
    assert status == 0
    assert _ran(place) == ["bf16-mixed timed"]
    assert "1 of 2 cases are kept from an earlier call, 1 to run" in out
    assert [row["samples_per_second"] for row in _stored(place)["results"]] == [100.0, 200.0]


@pytest.mark.slow
def test_the_small_form_measures_for_real(news_folder, tiny_bert_folder, run_cli, tmp_path):
    status, _out, err = run_cli(
        *("benchmark", "--data.path", news_folder, "--model.pretrained", tiny_bert_folder),
        *("--data.batch_size", "8", "--warmup", "2", "--steps", "4", "--seconds", "1"),
        *("--accuracy", "[fp32]", "--accuracy_seeds", "[1]", "--trainer.max_epochs", "1"),
        cwd=tmp_path,
    )
    assert status == 0, err
    rows = {row["key"]: row for row in _stored(tmp_path)["results"]}
    bucketed, padded = (rows[f"fp32, {kind}, batch 8"] for kind in ("bucketed", "padded"))
    assert padded["positions_a_step"] == 8 * 128
    assert bucketed["padding"] < padded["padding"] < 1
    assert bucketed["train_rows"] == 64
    assert 0 < rows["fp32, bucketed, batch 8, seed 1"]["accuracy"] < 1
