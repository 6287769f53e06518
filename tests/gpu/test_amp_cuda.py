"""What mixed precision promises on a GPU: python -m pytest -m gpu tests/gpu."""

import functools
import json
import math

import lightning.pytorch as L
import pytest
import torch
from scaled_runs import Overflow, Rates, Scales, batches, tiny_classifier, train

from bert_lightning.amp import AmpPrecision, AmpSettings, StepRing
from bert_lightning.callbacks.amp_recorder import AmpRecorder
from bert_lightning.console import Console
from bert_lightning.errors import TrainingError
from bert_lightning.optim import build_optimizer

pytestmark = pytest.mark.gpu
FORMS = pytest.mark.parametrize("fused", [True, False], ids=["fused", "plain"])


@pytest.fixture
def classifier(tiny_bert_folder):
    return functools.partial(tiny_classifier, tiny_bert_folder)


class NoWaiting(L.Callback):
    """Lets nothing wait for the device from the backward pass to the end of the batch.

    Comes last, so that the hooks of other callbacks at the end of a batch are under it. The first
    steps are left out: Lightning makes the place of a logged value when it is logged first.
    """

    def __init__(self, first, last):
        self.watched = range(first, last)
        self.seen = 0

    def on_before_backward(self, trainer, pl_module, loss):
        if trainer.global_step in self.watched:
            self.seen += 1
            torch.cuda.set_sync_debug_mode("error")

    def on_train_batch_end(self, *_):
        torch.cuda.set_sync_debug_mode("default")

    def on_exception(self, *_):
        torch.cuda.set_sync_debug_mode("default")


@FORMS
@pytest.mark.parametrize("attempts", [(1,), (3, 4, 8)])
def test_exactly_the_steps_with_overflow_are_skipped(classifier, fused, attempts):
    data, seen, recorder = batches(8), Rates(), AmpRecorder(None, Console())
    model = classifier(warmup_ratio=0.25, fused_optimizer=fused)
    trainer = train(model, data, Overflow(*attempts), seen, recorder, device="cuda")
    assert recorder.skipped_steps == list(attempts)
    assert recorder.loss_scale == 1024 / 2 ** len(attempts)
    steps = trainer.precision_plugin.ring.read(8)
    kept = [batch for number, batch in enumerate(data, 1) if number not in attempts]
    other, without = Rates(), classifier(warmup_ratio=2 / len(kept), fused_optimizer=fused)
    scales = Scales([step.loss_scale for step in steps if not step.is_skipped])
    train(without, kept, other, scales, device="cuda")
    assert [seen.rates[i] for i in range(8) if i + 1 not in attempts] == other.rates
    assert seen.updates[-1] == len(kept)
    for ours, theirs in zip(model.parameters(), without.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=0)  # sums by atomics on a GPU


@FORMS
@pytest.mark.parametrize("accumulate", [1, 2])
def test_no_step_waits_for_the_device(classifier, fused, accumulate):
    watch = NoWaiting(3, 9)
    model = classifier(fused_optimizer=fused, class_weights=[1.0, 2.0, 1.0, 0.5])
    recorder = AmpRecorder(None, Console())
    options = {"accumulate_grad_batches": accumulate, "log_every_n_steps": 100}
    data = batches(12 * accumulate)
    train(model, data, Overflow(5), recorder, watch, device="cuda", **options)
    assert watch.seen == 6 * accumulate
    assert recorder.skipped == 1


def test_reading_the_recorder_is_what_waits(classifier):
    """The test above would be worth nothing if waiting went unseen."""
    with pytest.raises(RuntimeError, match="synchronizing"):
        train(
            *[classifier(), batches(8), AmpRecorder(None, Console()), NoWaiting(3, 9)],
            device="cuda",
            log_every_n_steps=1,
        )
    torch.cuda.set_sync_debug_mode("default")


def test_one_fused_step_equals_the_plain_one_from_equal_gradients(classifier):
    class Gradient(L.Callback):
        def on_after_backward(self, trainer, pl_module):
            generator = torch.Generator("cuda").manual_seed(5)
            scale = trainer.precision_plugin.scaler.get_scale()
            for parameter in pl_module.parameters():
                size = parameter.shape
                parameter.grad = torch.randn(size, generator=generator, device="cuda") * scale

    weights = []
    for fused in (True, False):
        model = classifier(fused_optimizer=fused)
        train(model, batches(1), Gradient(), device="cuda")
        weights.append(torch.cat([p.detach().flatten() for p in model.network.parameters()]))
    torch.testing.assert_close(*weights, atol=1e-6, rtol=0)


def test_the_losses_of_a_hundred_fused_steps_are_those_of_the_plain_ones(classifier):
    class Losses(L.Callback):
        def __init__(self):
            self.seen = []

        def on_train_batch_end(self, trainer, pl_module, outputs, *_):
            self.seen.append(float(outputs["loss"]))

    both = []
    for fused in (True, False):
        losses = Losses()
        model = classifier(fused_optimizer=fused, learning_rate=2e-5)
        train(model, batches(100, rows=16), losses, device="cuda")
        both.append(torch.tensor(losses.seen))
    torch.testing.assert_close(*both, atol=0, rtol=1e-3)


def test_fused_and_clipped_in_bf16_too(classifier):
    model = classifier(fused_optimizer=True)
    seen = Rates()
    train(model, batches(4), seen, plugin=AmpPrecision("bf16-mixed", "cuda"), device="cuda")
    assert seen.updates[-1] == 4


def test_a_planted_nan_is_found_and_named(classifier, tmp_path):
    data = batches(4)
    data[2]["input_ids"][1, 3] = 1234
    data[3] = data[2]

    class Plant(L.Callback):
        def on_train_start(self, trainer, pl_module):
            pl_module.network.bert.embeddings.word_embeddings.register_forward_hook(
                lambda module, args, output: output.masked_fill(
                    (args[0] == 1234).unsqueeze(-1), math.nan
                )
            )

    recorder = AmpRecorder(tmp_path, Console())
    settings = AmpSettings(init_scale=1024.0, max_consecutive_skips=1)
    expected = r"output of bert\.embeddings\.word_embeddings; rows 201 of train"
    with pytest.raises(TrainingError, match=expected):
        train(classifier(), data, Plant(), recorder, settings=settings, device="cuda")
    assert (tmp_path / "amp_last_steps.csv").is_file()


@pytest.mark.parametrize("found", [0.0, 1.0])
def test_the_whole_scaled_step_can_be_captured(found):
    """What issue 5 builds on: replays count updates and move rate, scale and ring."""
    device = torch.device("cuda")
    network = torch.nn.Linear(8, 8, device=device)
    optimizer, schedule = build_optimizer(
        network, 0.1, 0.0, 0.0, 10, fused=True, scaled=True, device=device
    )
    scaler, ring = torch.amp.GradScaler("cuda", init_scale=1024.0), StepRing()
    x, spoil = torch.randn(4, 8, device=device), torch.zeros((), device=device)

    def step():
        optimizer.zero_grad(set_to_none=False)
        (scaler.scale(network(x).square().mean())).backward()
        network.weight.grad.add_(spoil)
        scaler.unscale_(optimizer)
        norm = torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        scale = scaler._get_scale_async()
        used = scale.clone()
        (found_inf,) = scaler._found_inf_per_device(optimizer).values()
        scaler.step(optimizer)
        scaler.update()
        ring.write(loss_scale=used, norm=norm, found_inf=found_inf, scale=scale)

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    ring.written -= 1  # capturing wrote nothing
    assert int(schedule.optimizer_steps) == 2
    spoil.fill_(math.inf if found else 0.0)
    graph.replay()
    ring.written += 1
    assert int(schedule.optimizer_steps) == (2 if found else 3)
    rate = float(optimizer.param_groups[0]["lr"])
    assert rate == pytest.approx(0.08 if found else 0.07)
    (last,) = ring.read(1)
    assert last.is_skipped is bool(found)
    assert (last.loss_scale, last.next_scale) == (1024, 512 if found else 1024)


# --- through the command line -------------------------------------------------------------------


def report(folder, number):
    file = folder / "runs" / str(number) / "report" / "report.json"
    return json.loads(file.read_text(encoding="utf-8"))


def test_the_plain_value_is_exchanged_and_recorded(run_cli, quick, tmp_path):
    words = ["--trainer.limit_train_batches", "8", "--trainer.log_every_n_steps", "2"]
    status, _, err = run_cli("fit", "--config", "amp.yaml", *quick, *words)
    assert status == 0, err
    amp = report(tmp_path, 1)["amp"]
    assert amp["steps"] == 8
    assert amp["loss_scale"] == 65536 / 2 ** amp["skipped"]
    status, out, err = run_cli(
        *["fit", "--ckpt_path", "last", "--trainer.max_epochs", "2"],
        *["--trainer.precision", "bf16-mixed"],
    )
    assert status == 0, err
    assert "its loss scale" in out


@pytest.mark.parametrize("precision", ["32", "bf16-mixed", "16-mixed"])
def test_fsdp_on_one_gpu_clips_and_learns_as_a_single_device(
    run_process, quick, tmp_path, precision
):
    words = [*quick, "--trainer.precision", precision, "--model.dropout", "0"]
    words += ["--trainer.limit_train_batches", "8", "--model.learning_rate", "2e-5"]
    words += ["--trainer.gradient_clip_val", "0.1"]
    for strategy in ([], ["--config", "fsdp.yaml"]):
        status, _, err = run_process("fit", *strategy, *words, env={"CUDA_VISIBLE_DEVICES": "0"})
        assert status == 0, err
    single, sharded = (report(tmp_path, number) for number in (1, 2))
    near = 1e-5 if precision == "32" else 2e-2
    assert sharded["results"]["val"]["loss"] == pytest.approx(
        single["results"]["val"]["loss"], rel=near
    )
    if precision == "16-mixed":
        assert sharded["amp"]["steps"] == 8
        assert sharded["amp"]["skipped"] < 8


def test_tf32_is_off_unless_the_key_is_on(run_cli, quick):
    for words, expected in (([], "highest"), (["--matmul.tf32", "true"], "high")):
        assert run_cli("fit", "--config", "fp32.yaml", *quick, *words).status == 0
        assert torch.get_float32_matmul_precision() == expected


def test_averaged_weights_on_the_gpu_are_those_that_are_kept(run_cli, quick, tmp_path):
    average = "lightning.pytorch.callbacks.EMAWeightAveraging"
    status, _, err = run_cli(
        *["fit", "--config", "amp.yaml", *quick, "--trainer.callbacks+", average],
        *["--trainer.callbacks.device", "cuda", "--trainer.callbacks.decay", "0.5"],
    )
    assert status == 0, err
    assert run_cli("test", "--ckpt_path", "best").status == 0
    assert report(tmp_path, 2)["results"]["test"]["loss"] == pytest.approx(
        report(tmp_path, 1)["results"]["test"]["loss"], rel=1e-3
    )
