from types import SimpleNamespace

import pytest
from made_up_results import JUDGEMENTS, RESULTS, failed, timed, trained

from bert_lightning.benchmark import case_screen
from bert_lightning.benchmark.case_screen import Screen
from bert_lightning.benchmark.cases import Case
from bert_lightning.console import Console

CASES = [Case("fp32", batch=32), Case("fp32", batch=32, seed=1), Case("tf32"), Case("16-mixed")]


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(case_screen, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


def test_where_no_one_looks_each_case_is_a_line(capsys, clock):
    known = {}
    screen = Screen(Console(), CASES, 3, known)
    with screen:
        for case, row in zip(
            CASES, (timed("fp32"), trained("fp32", 1, 0.9), failed("tf32", "no room")), strict=False
        ):
            screen.begin(case)
            screen.tick()
            known[case.key] = row
            screen.end(case)
    assert capsys.readouterr().out.splitlines() == [
        "1 of 4 cases are kept from an earlier call, 3 to run",
        "1/3 fp32, bucketed, batch 32: 100 samples/s, 20.0 s an epoch",
        "2/3 fp32, bucketed, batch 32, seed 1: val accuracy 90.00%",
        "3/3 tf32, bucketed, largest batch: no room",
    ]


def test_the_time_left_follows_from_the_cases_that_are_done(clock):
    known = {CASES[0].key: timed("fp32")}
    screen = Screen(Console(), CASES, 4, known)
    screen.begin(CASES[0])
    clock.now = 30.0
    screen.end(CASES[0])
    screen.begin(CASES[1])
    clock.now = 40.0
    assert screen.progress == (
        "2 of 4: fp32, bucketed, batch 32, seed 1 · 10 s · about 1 min 20 s left"
    )


def test_the_end_shows_tables_and_verdicts(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    Screen(Console(), CASES, 0, {}).show(RESULTS, JUDGEMENTS)
    text = " ".join(capsys.readouterr().out.split())
    assert "16-mixed, bucketed" in text
    assert "91.00%" in text
    assert "fails peak memory -45%: 16-mixed: 3 → 2, -33% – weights | dominate" in text
