import itertools
import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from bert_lightning.benchmark import case_timer
from bert_lightning.benchmark.case_timer import (
    CaseTimer,
    batch_sizes,
    largest_batch,
    network_facts,
    next_size,
    product_tflops,
)
from bert_lightning.benchmark.stopwatch import GRAPH_STEPS
from bert_lightning.data import batching
from bert_lightning.errors import ConfigError
from bert_lightning.module import BertClassifier

CPU = torch.device("cpu")


def _trainer(rows=10, batch_size=4, precision="32-true"):
    data = SimpleNamespace(
        batch_size=batch_size,
        longest_input=16,
        rows=lambda split: SimpleNamespace(lengths=np.full(rows, 5)),
    )
    return SimpleNamespace(
        strategy=SimpleNamespace(root_device=CPU),
        datamodule=data,
        precision_plugin=SimpleNamespace(precision=precision),
        gradient_clip_val=1.0,
        should_stop=False,
    )


@pytest.fixture
def model(tiny_bert_folder):
    return BertClassifier(pretrained=str(tiny_bert_folder), class_names=list("abcd"))


@pytest.fixture(autouse=True)
def quick_product(monkeypatch):
    monkeypatch.setattr(case_timer, "product_tflops", lambda dtype, device: 1.5)


def _timer(tmp_path, **more):
    settings = {"warmup": 1, "steps": 100, "seconds": 50.0, "repeats": 3, **more}
    return CaseTimer(0.0, str(tmp_path / "out.json"), **settings)


def _steps(timer, trainer, rows):
    """Take steps of so many rows until the timer ends the fit; return their number."""
    for number in range(1, 1000):
        batch = {"rows": np.arange(rows), "input_ids": np.zeros((rows, 8))}
        timer.on_train_batch_end(trainer, None, None, batch, 0)
        if trainer.should_stop:
            return number
    raise AssertionError("it never ended")


def test_the_result_says_what_the_machine_and_the_model_are(model, tmp_path):
    trainer, timer = _trainer(), _timer(tmp_path, steps=2, repeats=1)
    timer.setup(trainer, model, "fit")
    assert _steps(timer, trainer, 4) == GRAPH_STEPS + 1 + 2
    result = json.loads((tmp_path / "out.json").read_text("utf-8"))
    assert (result["precision"], result["tflops_peak"]) == ("32-true", 1.5)
    assert (result["batch_size"], result["train_rows"]) == (4, 10)
    assert result["padding"] == 1 - 5 / 8
    assert result["steps"] == 2


def test_a_whole_epoch_is_one_window_of_all_its_batches(model, tmp_path):
    trainer, timer = _trainer(rows=10, batch_size=4), _timer(tmp_path, steps=2, full=True)
    timer.setup(trainer, model, "fit")
    assert _steps(timer, trainer, 4) == GRAPH_STEPS + 1 + 3
    assert len(json.loads((tmp_path / "out.json").read_text("utf-8"))["repeats"]) == 1


def test_the_products_with_weights_are_counted_forward_and_backward(model):
    facts = network_facts(model.network, is_mixed=False)
    assert facts["flops_per_position"] == 6 * (4 * 32 * 32 + 2 * 32 * 64)
    weights = sum(weight.numel() for weight in model.network.parameters())
    assert facts["weights_gib"] == pytest.approx(weights * 4 / 2**30, abs=1e-3)


def test_random_order_takes_pools_of_one_batch(tmp_path, monkeypatch):
    monkeypatch.setattr(batching, "POOL_BATCHES", 50)
    _timer(tmp_path)
    assert batching.POOL_BATCHES == 50
    _timer(tmp_path, random_order=True)
    assert batching.POOL_BATCHES == 1


def test_a_product_has_a_rate(monkeypatch):
    monkeypatch.setattr(case_timer, "PRODUCT_SECONDS", 0.01)
    assert 0 < product_tflops(torch.float32, CPU) < 1000


def test_sizes_grow_by_a_tenth_in_multiples_of_eight():
    sizes = batch_sizes(4000)
    assert sizes[0] == 8
    assert all(size % 8 == 0 for size in sizes)
    assert all(next_size(a) == b for a, b in itertools.pairwise(sizes))
    assert all(a < b <= max(a + 8, 1.12 * a) for a, b in itertools.pairwise(sizes))


@pytest.fixture
def card(monkeypatch):
    """A GPU on which 100 rows have room; what is tried is noted."""
    card = SimpleNamespace(room=100, tried=[])

    class Meter:
        budget_gib = 5.0

        def __init__(self, device, memory_gib):
            assert memory_gib == 5.0

        def measure(self, work):
            work()
            return 1.0 if card.tried[-1] <= card.room else None

    class Trial:
        def __init__(self, trainer, model, length, make_trainer):
            assert length == 16

        def estimate(self, rows):
            return rows / 10

        def run(self, rows, windows):
            card.tried.append(rows)

    monkeypatch.setattr(case_timer, "CudaMeter", Meter)
    monkeypatch.setattr(case_timer, "Trial", Trial)
    return card


@pytest.mark.parametrize("room", [8, 100, 10_000])
def test_the_largest_batch_is_found_by_trials(card, room):
    card.room = room
    sizes = [size for size in batch_sizes(1000) if size <= room]
    assert largest_batch(_trainer(rows=1000), None, 16, 5.0) == sizes[-1]
    assert len(card.tried) <= 8


def test_no_room_for_the_smallest_batch_is_said(card):
    card.room = 0
    with pytest.raises(ConfigError, match="memory_gib: expected room for a batch of 8 rows"):
        largest_batch(_trainer(rows=1000), None, 16, 5.0)
