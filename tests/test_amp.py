"""The scaled step, on the CPU: fp16 autocast and scaler exist there, too."""

import functools
import logging
import math

import lightning.pytorch as L
import pytest
import torch
from lightning.fabric.plugins.precision.amp import _optimizer_handles_unscaling
from lightning.pytorch.plugins.precision import MixedPrecision, Precision
from scaled_runs import Gradients, Overflow, Rates, Scales, batches, tiny_classifier, train
from torch import nn

from bert_lightning.amp import AmpPrecision, AmpSettings, FSDPAmpPrecision, StepRing, scaler_state
from bert_lightning.callbacks.amp_recorder import AmpRecorder
from bert_lightning.console import Console
from bert_lightning.errors import ConfigError, TrainingError
from bert_lightning.optim import parameter_groups


@pytest.fixture
def classifier(tiny_bert_folder):
    """Return a new model, the same each time."""
    return functools.partial(tiny_classifier, tiny_bert_folder)


# --- skipped steps ------------------------------------------------------------------------------


@pytest.mark.filterwarnings("error:.*lr_scheduler.step.*")
@pytest.mark.parametrize("fused", [True, False], ids=["fused", "plain"])
@pytest.mark.parametrize("attempts", [(1,), (3, 4, 8), (2, 7)])
def test_exactly_the_steps_with_overflow_are_skipped(classifier, fused, attempts):
    data, seen = batches(8), Rates()
    recorder = AmpRecorder(None, Console())
    kind = {"fused_optimizer": fused}
    model = classifier(warmup_ratio=0.25, **kind)
    trainer = train(model, data, Overflow(*attempts), seen, recorder)
    assert recorder.skipped_steps == list(attempts)
    assert recorder.summary()["skipped"] == len(attempts)
    assert recorder.loss_scale == 1024 / 2 ** len(attempts)

    kept = [batch for number, batch in enumerate(data, 1) if number not in attempts]
    other = Rates()
    without = classifier(warmup_ratio=2 / len(kept), **kind)
    steps = trainer.precision_plugin.ring.read(8)
    assert [number for number, step in enumerate(steps, 1) if step.is_skipped] == list(attempts)
    train(without, kept, other, Scales([step.loss_scale for step in steps if not step.is_skipped]))
    good = [i for i in range(8) if i + 1 not in attempts]
    assert [seen.rates[i] for i in good] == other.rates
    assert [seen.updates[i] for i in good] == list(range(1, len(kept) + 1))
    for number in attempts:  # neither weights nor schedule have moved
        before = seen.updates[number - 2] if number > 1 else 0
        assert seen.updates[number - 1] == before
        if number > 1:
            assert torch.equal(seen.weights[number - 1], seen.weights[number - 2])
    for ours, theirs in zip(model.parameters(), without.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    for name in ("exp_avg", "exp_avg_sq", "step"):
        states = [m.optimizers().optimizer.state.values() for m in (model, without)]
        for ours, theirs in zip(*states, strict=True):
            assert torch.equal(ours[name], theirs[name])


def test_one_step_from_equal_gradients_is_the_same_for_fused_plain_and_unscaled(classifier):
    data = batches(1)
    weights = []
    for settings, plugin in (
        ({"fused_optimizer": True}, None),
        ({"fused_optimizer": False}, None),
        ({"fused_optimizer": False}, AmpPrecision("bf16-mixed", "cpu")),
    ):
        model = classifier(**settings)

        class Gradient(L.Callback):
            def on_after_backward(self, trainer, pl_module):
                torch.manual_seed(5)
                scaler = trainer.precision_plugin.scaler
                for parameter in pl_module.parameters():
                    scale = scaler.get_scale() if scaler else 1.0
                    parameter.grad = torch.randn_like(parameter) * scale

        train(model, data, Gradient(), plugin=plugin)
        weights.append(torch.cat([p.detach().flatten() for p in model.network.parameters()]))
    torch.testing.assert_close(weights[0], weights[1], atol=1e-6, rtol=0)
    torch.testing.assert_close(weights[0], weights[2], atol=1e-6, rtol=0)


def test_the_norm_is_that_of_the_unscaled_gradient_before_clipping(classifier):
    class Norm(L.Callback):
        def on_before_optimizer_step(self, trainer, pl_module, optimizer):
            grads = [p.grad.flatten() for p in pl_module.parameters() if p.grad is not None]
            self.norm = float(torch.cat(grads).norm())

    for clip in (0.01, None):
        norm, recorder = Norm(), AmpRecorder(None, Console())
        trainer = train(classifier(), batches(2), norm, recorder, gradient_clip_val=clip)
        (_, last) = trainer.precision_plugin.ring.read(2)
        assert last.gradient_norm == pytest.approx(norm.norm, rel=1e-5)
        assert recorder.clipped == (2 if clip else 0)
    assert trainer.logged_metrics["train/clipped_share"] == 0
    assert trainer.logged_metrics["amp/loss_scale"] == 1024
    assert trainer.logged_metrics["train/optimizer_steps"] == 2


def test_overflow_is_said_once_an_event_with_the_count(classifier, capsys):
    train(classifier(), batches(12), Overflow(3, 4, 5, 9), AmpRecorder(None, Console()))
    said = [line for line in capsys.readouterr().out.splitlines() if "overflow" in line]
    assert said == [
        "Gradient overflow detected: 3 steps skipped (3, 4, 5), 3 so far; loss scale 128",
        "Gradient overflow detected: 1 step skipped (9), 4 so far; loss scale 64",
    ]


# --- stopping -----------------------------------------------------------------------------------


def test_a_planted_nan_is_found_and_named(classifier, tmp_path):
    model = classifier()
    data = batches(8)
    data[4]["input_ids"][2, 3] = 1234
    data[4]["input_ids"][3, 3] = 1234

    class Plant(L.Callback):  # weights stay finite, so the module is to be named
        def on_train_start(self, trainer, pl_module):
            def spoil(module, args, output):
                return output.masked_fill((args[0] == 1234).unsqueeze(-1), math.nan)

            pl_module.network.bert.embeddings.word_embeddings.register_forward_hook(spoil)

    data[5] = data[4]
    settings = AmpSettings(init_scale=1024.0, max_consecutive_skips=1)
    with pytest.raises(TrainingError) as error:
        train(model, data, Plant(), AmpRecorder(tmp_path, Console()), settings=settings)
    text = str(error.value)
    assert text.startswith(
        "amp.max_consecutive_skips: expected at most 1 skipped steps in a row – found 2 up to step"
    )
    assert "at step 6: output of bert.embeddings.word_embeddings; rows 402, 403 of train" in text
    assert "402, 403 of train, counted from 0 (" in text
    assert text.splitlines()[-1] == (
        "no checkpoint was written yet: begin again with a lower --amp.init_scale or"
        " --model.learning_rate, without these rows, or with --trainer.precision bf16-mixed;"
        f" {tmp_path / 'amp_last_steps.csv'} holds the last steps"
    )
    lines = (tmp_path / "amp_last_steps.csv").read_text().splitlines()
    assert lines[0] == "step,loss_scale,gradient_norm,is_skipped,next_scale"
    assert [line.split(",")[3] for line in lines[1:]] == ["False"] * 4 + ["True"] * 2
    assert all(parameter.isfinite().all() for parameter in model.parameters())


def test_gradient_checkpointing_makes_transformers_say_nothing(classifier, caplog):
    from transformers.utils import logging as transformers_logging

    transformers_logging.warning_once.cache_clear()
    logger = logging.getLogger("transformers")
    logger.addHandler(caplog.handler)
    try:
        train(classifier(gradient_checkpointing=True), batches(1))
    finally:
        logger.removeHandler(caplog.handler)
    assert "use_cache" not in caplog.text


def test_a_gradient_that_overflows_is_named(classifier):
    model = classifier(gradient_checkpointing=True)

    class Steep(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            return x.clone()

        @staticmethod
        def backward(context, gradient):
            gradient = gradient.clone()
            gradient[1] *= 1e30
            return gradient

    model.network.bert.pooler.register_forward_hook(lambda m, a, output: Steep.apply(output))
    settings = AmpSettings(init_scale=1024.0, max_consecutive_skips=1)
    with pytest.raises(TrainingError, match=r"gradient of bert\.pooler\.dense; rows 101 of train"):
        train(model, batches(4), AmpRecorder(None, Console()), settings=settings)


def test_no_row_is_blamed_for_a_loss_scale_that_is_too_high_for_all(classifier):
    settings = AmpSettings(init_scale=1e30, max_consecutive_skips=1)
    with pytest.raises(TrainingError, match="; every row of the batch\n") as error:
        train(classifier(), batches(4), AmpRecorder(None, Console()), settings=settings)
    assert "these rows" not in str(error.value)
    assert "a lower --amp.init_scale" in str(error.value)


def test_a_run_at_the_floor_is_stopped_and_the_scale_is_never_below(classifier):
    settings = AmpSettings(init_scale=1024.0, min_scale=200.0)
    recorder = AmpRecorder(None, Console())
    with pytest.raises(TrainingError, match="expected a loss scale above 200 – found 200 after"):
        train(classifier(), batches(8), Overflow(2, 4, 5, 6), recorder, settings=settings)
    assert recorder.loss_scale == 200
    assert recorder.skipped_steps == [2, 4, 5, 6][: recorder.skipped]


def test_overflow_that_does_not_come_again_is_said_to_be_so(classifier):
    settings = AmpSettings(max_consecutive_skips=1)
    recorder = AmpRecorder(None, Console())
    with pytest.raises(TrainingError, match="not finite at steps 1, 2, but finite when"):
        train(classifier(), batches(4), Overflow(1, 2), recorder, settings=settings)


@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_a_checkpoint_is_only_recommended_where_there_is_one(classifier, tmp_path, has_checkpoint):
    words = "no checkpoint was written yet: begin again with a lower"
    if has_checkpoint:
        (tmp_path / "checkpoints").mkdir()
        (tmp_path / "checkpoints" / "last.ckpt").touch()
        words = f"go on with --ckpt_path {tmp_path} and a lower --model.learning_rate, or with"
    settings = AmpSettings(max_consecutive_skips=1)
    recorder = AmpRecorder(tmp_path, Console())
    with pytest.raises(TrainingError, match=words):
        train(classifier(), batches(4), Overflow(1, 2), recorder, settings=settings)


# --- accumulation -------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [None, [0.5, 1.0, 2.0, 0.5]])
@pytest.mark.parametrize("scaled", [True, False])
def test_a_short_last_window_weighs_each_row_the_same(classifier, scaled, weights):
    small = batches(5, rows=4, last=3)  # windows of 2: 8, 8 and 3 rows
    pairs = [small[0:2], small[2:4], small[4:]]
    big = [
        {
            name: torch.cat([b[name] for b in pair])
            for name in ("input_ids", "attention_mask", "labels")
        }
        for pair in pairs
    ]
    kept, seen = Gradients(), Rates()
    train(
        *[classifier(class_weights=weights), small, seen, kept],
        plugin=None if scaled else Precision(),
        accumulate_grad_batches=2,
        gradient_clip_val=None,
    )
    assert seen.updates[-1] == len(kept.seen) == 3

    model = classifier()  # by hand: the mean over all rows of a window, in float32
    optimizer = torch.optim.AdamW(parameter_groups(model.network, 0.01, 1e-3))
    class_weights = None if weights is None else torch.tensor(weights)
    for batch, ours in zip(big, kept.seen, strict=True):
        losses = nn.functional.cross_entropy(
            model(batch["input_ids"], batch["attention_mask"]),
            batch["labels"],
            weight=class_weights,
            reduction="none",
        )
        optimizer.param_groups[0]["lr"] = optimizer.param_groups[1]["lr"] = seen.rates[0]
        optimizer.zero_grad()
        losses.mean().backward()
        theirs = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
        near = (1e-2 if scaled else 1e-5) * float(theirs.abs().max())
        torch.testing.assert_close(ours, theirs, atol=near, rtol=0)
        optimizer.step()


# --- settings and state -------------------------------------------------------------------------


def test_all_faults_of_the_settings_are_told_at_once():
    wrong = AmpSettings(1.0, 1.0, 0, 1.0, 2.0, 0)
    with pytest.raises(ConfigError) as error:
        AmpPrecision("16-mixed", "cpu", wrong)
    lines = str(error.value).splitlines()
    assert lines[0] == "amp.init_scale: expected more than amp.min_scale, up to 3.4e+38 – found 1.0"
    assert [line.split(":")[0] for line in lines] == [
        "amp.init_scale",
        "amp.growth_factor",
        "amp.growth_interval",
        "amp.backoff_factor",
        "amp.max_consecutive_skips",
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("init_scale", math.inf),
        ("init_scale", math.nan),
        ("init_scale", 1e39),
        ("growth_factor", math.inf),
        ("growth_interval", 2**31),
        ("min_scale", 1e-60),
    ],
)
def test_what_a_scaler_on_a_device_cannot_hold_is_refused(name, value):
    with pytest.raises(ConfigError, match=f"amp.{name}: expected .* – found"):
        AmpSettings(**{name: value}).check()


def test_scale_and_growth_go_on_and_configured_factors_count(classifier):
    settings = AmpSettings(init_scale=1024.0, growth_interval=100)
    stored = train(
        classifier(), batches(5), Overflow(2), settings=settings
    ).precision_plugin.state_dict()
    assert (stored["scale"], stored["_growth_tracker"]) == (512, 3)
    plugin = AmpPrecision("16-mixed", "cpu", AmpSettings(growth_interval=7))
    plugin.load_state_dict(stored)
    now = plugin.state_dict()
    assert (now["scale"], now["_growth_tracker"], now["growth_interval"]) == (512, 3, 7)


@pytest.mark.parametrize("key", ["MixedPrecision", "FSDPAmpPrecision", "FSDPPrecision"])
def test_state_of_another_plugin_is_taken_over(key):
    stored = {**torch.amp.GradScaler("cpu").state_dict(), "scale": 256.0}
    plugin = AmpPrecision("16-mixed", "cpu")
    plugin.on_load_checkpoint({key: stored})
    assert plugin.scaler.get_scale() == 256
    assert scaler_state({key: stored}) == stored
    assert scaler_state({}) is None
    AmpPrecision("bf16-mixed", "cpu").on_load_checkpoint({key: stored})  # nothing to load


def test_the_ring_keeps_the_newest_in_order():
    ring = StepRing(capacity=4)
    assert ring.read(3) == []
    for number in range(6):
        value = torch.tensor(float(number))
        ring.write(loss_scale=value, norm=value, found_inf=value % 2, scale=value + 1)
    assert [step.loss_scale for step in ring.read(9)] == [2, 3, 4, 5]
    assert [step.is_skipped for step in ring.read(2)] == [False, True]
    assert ring.read(1)[0].next_scale == 6


# --- what is relied on of Lightning and torch ---------------------------------------------------


def test_lightnings_own_plugin_still_refuses_a_fused_optimizer_with_clipping():
    optimizer = torch.optim.AdamW(nn.Linear(2, 2).parameters(), fused=True)
    assert _optimizer_handles_unscaling(optimizer)
    with pytest.raises(RuntimeError, match="does not allow for gradient clipping"):
        MixedPrecision("bf16-mixed", "cpu").clip_gradients(optimizer, 1.0)


def test_a_step_hook_sees_found_inf_while_the_scaler_steps():
    network = nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(network.parameters(), fused=True)
    seen = []
    optimizer.register_step_post_hook(lambda o, *_: seen.append(float(o.found_inf)))
    scaler = torch.amp.GradScaler("cpu")
    for value in (1.0, math.inf):
        optimizer.zero_grad()
        scaler.scale(network(torch.ones(1, 2)).sum()).backward()
        network.weight.grad[0, 0] *= value
        scaler.unscale_(optimizer)
        assert len(scaler._found_inf_per_device(optimizer)) == 1
        scaler.step(optimizer)
        scaler.update()
    assert seen == [0.0, 1.0]
    assert not hasattr(optimizer, "found_inf")
    assert scaler._get_scale_async() is scaler._get_scale_async()  # updated in place


def test_fsdp_takes_the_same_keys_and_clips_by_its_root(monkeypatch):
    plugin = FSDPAmpPrecision("bf16-mixed")
    assert plugin.scaler is None

    class Root:
        def clip_grad_norm_(self, limit):
            return torch.tensor(limit * 2)

    plugin._root = Root()
    plugin.clip_gradients(None, 1.0)
    assert float(plugin.gradient_norm) == 2
    monkeypatch.setattr("torch.cuda.amp.common.amp_definitely_not_available", lambda: False)
    scaled = FSDPAmpPrecision("16-mixed", AmpSettings(init_scale=256.0, growth_interval=9))
    state = scaled.scaler.state_dict()
    assert (state["scale"], state["growth_interval"]) == (256, 9)
