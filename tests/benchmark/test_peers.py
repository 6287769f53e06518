import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from bert_lightning.benchmark import peers

NAMES = ["--groups", "headlines-256"]  # trainer-fp16 and ours-16-mixed


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """Replace the cells; list which were run. What a cell is to give stands in `gives`."""
    record = SimpleNamespace(cells=[], gives={"samples_per_second": 100.0})
    row = {"pieces_per_second": 2, "repeats": [1.0], "steps": 1, "seconds": 1.0}

    def measure(group, cell, workplace):
        record.cells.append(cell.name)
        return {**row, **record.gives} if "reason" not in record.gives else record.gives

    monkeypatch.setattr(peers, "_measure", measure)
    monkeypatch.setattr(peers, "environment", lambda: {"torch": torch.__version__})
    record.out = tmp_path / "out"
    record.run = lambda *words: peers.main([*words, "--output", str(record.out)])
    record.stored = lambda: json.loads((record.out / "peers.json").read_text("utf-8"))["results"]
    return record


def test_what_is_measured_is_not_run_again(measured, capsys):
    measured.run(*NAMES, "--cells", "trainer-fp16")
    measured.run(*NAMES)
    assert measured.cells == ["trainer-fp16", "ours-16-mixed"]
    assert [row["cell"] for row in measured.stored()] == measured.cells
    assert (measured.out / "peers.md").read_text("utf-8") in capsys.readouterr().out
    measured.gives = {"samples_per_second": 200.0}
    measured.run(*NAMES, "--again")
    assert len(measured.cells) == 4
    assert [row["samples_per_second"] for row in measured.stored()] == [200.0, 200.0]


def test_a_cell_that_failed_is_run_again(measured):
    measured.gives = {"reason": "out of memory"}
    measured.run(*NAMES)
    assert [row["reason"] for row in measured.stored()] == ["out of memory"] * 2
    measured.gives = {"samples_per_second": 100.0}
    measured.run(*NAMES)
    assert len(measured.cells) == 4
    assert all("reason" not in row for row in measured.stored())


def test_another_model_or_version_is_measured_anew(measured, monkeypatch):
    measured.run(*NAMES)
    measured.run(*NAMES, "--small")
    monkeypatch.setattr(peers, "environment", lambda: {"torch": "other"})
    measured.run(*NAMES)
    assert len(measured.cells) == len(measured.stored()) == 6


def test_a_call_that_is_cut_off_keeps_what_it_has_measured(measured, monkeypatch):
    measure = peers._measure

    def cut_off(group, cell, workplace):
        if cell.name == "ours-16-mixed":
            raise KeyboardInterrupt
        return measure(group, cell, workplace)

    monkeypatch.setattr(peers, "_measure", cut_off)
    with pytest.raises(KeyboardInterrupt):
        measured.run(*NAMES)
    assert [row["cell"] for row in measured.stored()] == ["trainer-fp16"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_without_a_gpu_only_the_small_form_runs(tmp_path):
    peers.main([*NAMES, "--output", str(tmp_path)])
    rows = json.loads((tmp_path / "peers.json").read_text("utf-8"))["results"]
    assert [row["reason"] for row in rows] == ["no CUDA", "no CUDA"]


def test_real_titles_need_a_folder(tmp_path):
    peers.main(["--small", "--groups", "titles-32", "--output", str(tmp_path)])
    rows = json.loads((tmp_path / "peers.json").read_text("utf-8"))["results"]
    assert {row["reason"] for row in rows} == {"needs --data.path"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--groups", "all"], "invalid choice: 'all'"),
        (["--cells", "ours"], "invalid choice: 'ours'"),
        (["--warmup", "0"], "--warmup: expected 1 or more – found 0"),
        (["--data.path", "nowhere"], "--data.path: expected a folder – found none at nowhere"),
    ],
)
def test_what_is_not_known_is_refused(words, message, capsys):
    with pytest.raises(SystemExit):
        peers.main(words)
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("stderr", "expected"),
    [
        ("Traceback\ntorch.OutOfMemoryError: CUDA out of memory. Tried\n", "out of memory"),
        ("error: model.x: no key\ndid you mean y?\n", "error: model.x: no key"),
        ("Traceback\nImportError: needs accelerate\n\n", "ImportError: needs accelerate"),
        ("error: /home/me/news: expected rows\n", "error: news: expected rows"),
        (
            "torch.X.BackendError: no kernel\n\nSet VERBOSE=1 for more\n",
            "torch.X.BackendError: no kernel",
        ),
        ("a | b\n", "a / b"),
        ("", "ended before all was measured"),
    ],
)
def test_the_reason_is_a_line_without_places(stderr, expected):
    assert peers.reason(stderr, [Path("/home/me")]) == expected


def test_prediction_is_told_in_titles_a_second():
    result = peers.prediction_rates({"seconds": 2.0, "loop_seconds": 0.5}, 1000, 10.0)
    assert result["samples_per_second"] == 500
    assert result["total_samples_per_second"] == 100
    assert result["loop_samples_per_second"] == 2000
    assert "loop_samples_per_second" not in peers.prediction_rates({"seconds": 2.0}, 1000, 10.0)


@pytest.mark.slow  # four processes that import transformers
def test_a_peer_and_the_project_run_in_the_small_form(tmp_path):
    words = ["--small", "--output", str(tmp_path), "--cells", "loop-fp16", "ours-32"]
    peers.main([*words, "--groups", "headlines-32"])
    peers.main(["--small", "--output", str(tmp_path), "--groups", "prediction-256"])
    rows = json.loads((tmp_path / "peers.json").read_text("utf-8"))["results"]
    assert [row["cell"] for row in rows] == [
        *("loop-fp16", "ours-32", "pipeline-fp16", "ours-16-mixed")
    ]
    for row in rows:
        assert "reason" not in row, row
        assert row["samples_per_second"] > 0
    for row in rows[:2]:
        assert row["steps"] == peers.SMALL_EXTENT.steps
        assert 15 < row["pieces_per_second"] / row["samples_per_second"] < 30
        assert row["first_step_seconds"] > 0
    assert rows[3]["loop_samples_per_second"] > rows[3]["total_samples_per_second"]
    assert str(tmp_path) not in (tmp_path / "peers.json").read_text("utf-8")
