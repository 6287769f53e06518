import json
from types import SimpleNamespace

import numpy as np
import pytest

from bert_lightning.benchmark import stopwatch
from bert_lightning.benchmark.stopwatch import Extent, PredictionTimer, StepTimer, Stopwatch


class Clock:
    """Stands still until it is told how long a step takes."""

    def __init__(self):
        self.now = 1000.0

    def read(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    time = SimpleNamespace(perf_counter=clock.read, time=clock.read)
    monkeypatch.setattr(stopwatch, "time", time)
    return clock


def run(watch, clock, step_seconds, rows=32, pieces=600):
    """Count steps until all is measured; return their number."""
    for number, seconds in enumerate(step_seconds, 1):
        clock.now += seconds
        if watch.count(rows, pieces):
            return number
    return None


def test_what_comes_before_the_window_is_left_out(clock, tmp_path):
    extent = Extent(warmup=3, steps=4, seconds=100, repeats=1)
    watch = Stopwatch(extent, clock.now - 5, tmp_path / "out.json")
    assert run(watch, clock, [10, 1, 1, 0.5, 0.5, 0.5, 0.5, 9]) == 7
    result = json.loads((tmp_path / "out.json").read_text("utf-8"))
    assert result["samples_per_second"] == 64
    assert result["pieces_per_second"] == 1200
    assert (result["steps"], result["seconds"]) == (4, 2)
    assert result["first_step_seconds"] == 15
    assert result["ready_seconds"] == 17
    assert result["allocated_gib"] is None or result["allocated_gib"] >= 0


@pytest.mark.parametrize(("settling", "steps"), [(None, 9), (5, 5)])
def test_a_warm_up_ends_by_its_seconds_only_where_that_is_asked_for(
    clock, tmp_path, settling, steps
):
    extent = Extent(8, 1, 100, repeats=1, settling=settling)
    watch = Stopwatch(extent, clock.now, tmp_path / "out.json")
    assert run(watch, clock, [2] * 20) == steps


def test_a_warm_up_of_bounded_seconds_goes_on_until_every_shape_came_up_twice(clock, tmp_path):
    extent = Extent(2, 1, 100, repeats=1, settling=100)
    watch = Stopwatch(extent, clock.now, tmp_path / "out.json")
    shapes = [8, 16, 8, 16, 8, 24, 8, 24, 24, 16, 24]
    ended = []
    for positions in shapes:
        clock.now += 1
        ended.append(watch.count(32, 600, positions))
    assert ended == [False] * 10 + [True]


def test_energy_is_that_of_the_window(clock, tmp_path):
    watch = Stopwatch(
        Extent(2, 2, 100, repeats=1), clock.now, tmp_path / "out.json", lambda: 8 * clock.now
    )
    assert run(watch, clock, [9, 9, 2, 2]) == 4
    assert json.loads((tmp_path / "out.json").read_text("utf-8"))["joules_per_sample"] == 0.5


def test_a_window_ends_by_its_seconds_too(clock, tmp_path):
    watch = Stopwatch(Extent(1, 400, 15, repeats=1), clock.now, tmp_path / "out.json")
    assert run(watch, clock, [1, *[4] * 10]) == 5
    assert json.loads((tmp_path / "out.json").read_text("utf-8"))["seconds"] == 16


def test_the_median_of_three_windows_counts(clock, tmp_path):
    watch = Stopwatch(Extent(1, 2, 15), clock.now, tmp_path / "out.json")
    assert run(watch, clock, [1, 2, 2, 1, 1, 4, 4, 9]) == 7
    result = json.loads((tmp_path / "out.json").read_text("utf-8"))
    assert result["repeats"] == [16, 32, 8]
    assert result["samples_per_second"] == 16


@pytest.mark.parametrize(("window_seconds", "windows"), [(14, 1), (8, 2), (6, 3)])
def test_long_windows_are_not_repeated(clock, tmp_path, window_seconds, windows):
    watch = Stopwatch(Extent(1, 1, 100), clock.now, tmp_path / "out.json")
    assert run(watch, clock, [1, *[window_seconds] * 9]) == 1 + windows


def test_nothing_is_written_before_all_is_measured(clock, tmp_path):
    watch = Stopwatch(Extent(1, 5, 100), clock.now, tmp_path / "out.json")
    assert run(watch, clock, [1, 1, 1]) is None
    assert not (tmp_path / "out.json").exists()


def test_the_callback_counts_real_rows_and_pieces_and_ends_the_fit(clock, tmp_path):
    lengths = np.array([3, 5, 7, 9])
    data = SimpleNamespace(rows=lambda split: SimpleNamespace(lengths=lengths))
    trainer = SimpleNamespace(datamodule=data, should_stop=False)
    timer = StepTimer(clock.now, str(tmp_path / "out.json"), warmup=1, steps=2, repeats=1)
    for rows in ([0, 1, 2, 3], [1, 3], [0]):
        assert not trainer.should_stop
        clock.now += 1
        batch = {"rows": np.array(rows), "input_ids": np.zeros((8, 16))}
        timer.on_train_batch_end(trainer, None, None, batch, 0)
    assert trainer.should_stop
    result = json.loads((tmp_path / "out.json").read_text("utf-8"))
    assert result["samples_per_second"] == 1.5
    assert result["positions_per_second"] == 128
    assert result["pieces_per_second"] == 8  # (5 + 9 + 3) / 2, rounded to even


def test_prediction_is_timed_whole_and_its_loop_alone(clock, tmp_path):
    timer = PredictionTimer(str(tmp_path / "out.json"))
    timer.setup("predict")
    for seconds, action in (
        (3, "[LightningDataModule]Data.setup"),
        (1, "[Callback]Writer.on_predict_epoch_start"),
        (2, "[LightningModule]Model.on_predict_epoch_start"),
        (4, "[Callback]Writer.on_predict_epoch_end"),
        (1, "[LightningModule]Model.on_predict_epoch_end"),
    ):
        clock.now += seconds
        with timer.profile(action):
            pass
    clock.now += 5
    timer.describe()
    result = json.loads((tmp_path / "out.json").read_text("utf-8"))
    assert (result["seconds"], result["loop_seconds"]) == (16, 6)
