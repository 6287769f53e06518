"""What a captured training promises on a GPU: python -m pytest -m gpu tests/gpu."""

import functools
import math
import time

import lightning.pytorch as L
import pytest
import torch
from lightning.pytorch.plugins.precision import Precision
from scaled_runs import (
    Poison,
    Rates,
    assert_gradients_fit_the_loss,
    tiny_classifier,
    train,
)

from bert_lightning.amp import AmpPrecision, AmpSettings
from bert_lightning.callbacks.amp_recorder import AmpRecorder
from bert_lightning.callbacks.finite_loss import FiniteLoss
from bert_lightning.captured import EVALUATION_LAUNCHES, CapturedForward
from bert_lightning.console import Console
from bert_lightning.graphs import Studio

pytestmark = pytest.mark.gpu
PLUGINS = {
    "32-true": Precision,
    "16-mixed": lambda: AmpPrecision("16-mixed", "cuda", AmpSettings(init_scale=1024.0)),
    "bf16-mixed": lambda: AmpPrecision("bf16-mixed", "cuda"),
}


@pytest.fixture
def classifier(tiny_bert_folder):
    return functools.partial(tiny_classifier, tiny_bert_folder)


def varied(count, lengths=(9, 12, 17), rows=8, last=3):
    generator = torch.Generator().manual_seed(4)
    made = []
    for number in range(count):
        size = last if number == count - 1 else rows
        length = lengths[number % len(lengths)]
        mask = torch.ones(size, length, dtype=torch.int64)
        mask[0, length // 2 :] = 0
        made.append(
            {
                "input_ids": torch.randint(5, 500, (size, length), generator=generator),
                "attention_mask": mask,
                "labels": torch.randint(0, 4, (size,), generator=generator),
                "rows": (torch.arange(size) + 100 * number).numpy(),
            }
        )
    return made


class Losses(L.Callback):
    """Keeps the loss of each step, and lets nothing wait for the device where it is told to."""

    def __init__(self, unwaited=range(0)):
        self.kept, self.unwaited = [], unwaited

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if batch_idx in self.unwaited:
            torch.cuda.set_sync_debug_mode("error")

    def on_train_batch_end(self, trainer, pl_module, *_):
        torch.cuda.set_sync_debug_mode("default")
        if (trainer.global_step or 0) > len(self.kept):
            self.kept.append(pl_module._logged["train/loss"].clone())

    def on_exception(self, *_):
        torch.cuda.set_sync_debug_mode("default")

    @property
    def values(self):
        return torch.stack(self.kept).tolist()


def trained(classifier, data, precision, execution, *callbacks, settings=None, **options):
    seen = Losses()
    model = classifier(execution=execution, **(settings or {}))
    train(model, data, seen, *callbacks, plugin=PLUGINS[precision](), device="cuda", **options)
    assert model.chosen.name == execution
    return model, seen.values


@pytest.mark.parametrize("accumulate", [1, 3])
def test_200_steps_in_float32_equal_eager_ones(classifier, accumulate):
    data = varied(200)
    settings = {"learning_rate": 1e-4, "schedule": "linear", "warmup_ratio": 0.1}
    options = {"settings": settings, "accumulate_grad_batches": accumulate}
    _, eager = trained(classifier, data, "32-true", "eager", **options)
    for execution in ("captured", "compiled"):
        _, ours = trained(classifier, data, "32-true", execution, **options)
        assert ours == pytest.approx(eager, rel=1e-4)


@pytest.mark.parametrize("precision", ["16-mixed", "bf16-mixed"])
def test_losses_in_mixed_precision_stay_near_eager_ones(classifier, precision):
    data = varied(200)
    settings = {"learning_rate": 1e-4}
    _, eager = trained(classifier, data, precision, "eager", settings=settings)
    _, ours = trained(classifier, data, precision, "captured", settings=settings)
    assert ours == pytest.approx(eager, rel=0.02)


def test_dropout_differs_at_every_replay_and_follows_the_seed(classifier):
    data = varied(1, last=8) * 8
    settings = {"learning_rate": 1e-12, "dropout": 0.5}
    _, first = trained(classifier, data, "32-true", "captured", settings=settings)
    assert len(set(first)) == 8
    _, second = trained(classifier, data, "32-true", "captured", settings=settings)
    assert first == second


@pytest.mark.parametrize("attempts", [(1,), (3, 4, 9)])
def test_exactly_the_steps_with_overflow_are_skipped(classifier, attempts):
    data, recorder, rates = varied(12), AmpRecorder(None, Console()), Rates()
    trained(classifier, data, "16-mixed", "captured", Poison(*attempts), recorder, rates)
    assert recorder.skipped_steps == list(attempts)
    assert recorder.steps == 12
    assert recorder.loss_scale == 1024 / 2 ** len(attempts)
    assert rates.updates[-1] == 12 - len(attempts)


@pytest.mark.parametrize("precision", ["32-true", "16-mixed"])
def test_no_step_waits_for_the_device(classifier, precision):
    watch = Losses(range(8, 19))
    scaled = precision == "16-mixed"
    recorder = AmpRecorder(None, Console()) if scaled else FiniteLoss(None)
    data = varied(20)
    trained(classifier, data, precision, "captured", recorder, watch, log_every_n_steps=100)
    assert len(watch.kept) == 20


@pytest.mark.parametrize("precision", ["32-true", "16-mixed"])
def test_layers_computed_again_give_the_same_losses(classifier, precision):
    data, settings = varied(12), {"learning_rate": 1e-4}
    _, plain = trained(classifier, data, precision, "captured", settings=settings)
    again = {**settings, "gradient_checkpointing": True}
    _, ours = trained(classifier, data, precision, "captured", settings=again)
    assert ours == pytest.approx(plain, rel=1e-3)


@pytest.mark.parametrize("is_full", [True, False])
def test_layers_computed_again_draw_the_same_dropout(classifier, is_full):
    network = classifier(dropout=0.1).network.cuda()
    ids, mask = (
        varied(1, (80,), last=8)[0][name].cuda() for name in ("input_ids", "attention_mask")
    )
    assert_gradients_fit_the_loss(network, ids, mask, compiled=True, is_full=is_full)


@pytest.mark.parametrize("is_full", [True, False])
def test_layers_computed_again_with_dropout_are_captured(classifier, is_full):
    data = varied(12, (80,), last=8)
    for batch in data:
        batch["attention_mask"] |= is_full
        batch["is_full"] = is_full
    settings = {"gradient_checkpointing": True, "dropout": 0.1}
    _, losses = trained(classifier, data, "16-mixed", "captured", settings=settings)
    assert all(map(math.isfinite, losses))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_replayed_logits_are_those_of_the_network(classifier, dtype):
    network = classifier().network.cuda().eval()
    forward = CapturedForward(network, dtype, 512, Studio(torch.device("cuda", 0)))
    data = varied(EVALUATION_LAUNCHES + 8, lengths=(12,), last=5)
    for batch in data:
        batch = {name: value.cuda() for name, value in batch.items() if name != "rows"}
        ours = forward(batch)
        with torch.no_grad(), torch.autocast("cuda", dtype, enabled=dtype != torch.float32):
            theirs = network(batch["input_ids"], batch["attention_mask"]).logits
        torch.testing.assert_close(ours, theirs.float(), atol=1e-2, rtol=1e-2)
    assert forward.studio.graphs == 1


def test_a_new_length_takes_less_than_a_second(classifier):
    class Seconds(L.Callback):
        def __init__(self):
            self.kept = []

        def on_train_batch_start(self, *_):
            torch.cuda.synchronize()
            self.started = time.perf_counter()

        def on_train_batch_end(self, *_):
            torch.cuda.synchronize()
            self.kept.append(time.perf_counter() - self.started)

    seconds = Seconds()
    data = varied(6) + varied(2, lengths=(31,), last=8) + varied(2, lengths=(80,), last=8)
    trained(classifier, data, "16-mixed", "captured", seconds)
    assert max(seconds.kept[6:]) < 1.0


def test_a_run_goes_on_in_either_execution(classifier, tmp_path):
    class Saved(L.Callback):
        def on_train_end(self, trainer, pl_module):
            trainer.save_checkpoint(tmp_path / "half.ckpt")

    data, settings = varied(6), {"learning_rate": 1e-4}
    _, whole = trained(classifier, data, "32-true", "eager", settings=settings, max_epochs=2)
    for first, second in (("eager", "captured"), ("captured", "eager"), ("captured",) * 2):
        trained(classifier, data, "32-true", first, Saved(), settings=settings)
        path = tmp_path / "half.ckpt"
        options = {"settings": settings, "max_epochs": 2, "ckpt_path": path}
        _, losses = trained(classifier, data, "32-true", second, **options)
        assert losses == pytest.approx(whole[6:], rel=1e-4)
