"""What graphs record, run without graphs: on a CPU the same work is launched each time."""

import math

import lightning.pytorch as L
import pytest
import torch
from lightning.pytorch.plugins.precision import Precision
from scaled_runs import Poison, Rates, batches, tiny_classifier, train

from bert_lightning import captured as captured_module
from bert_lightning import graphs
from bert_lightning import module as module_of_classifier
from bert_lightning.amp import AmpPrecision, AmpSettings
from bert_lightning.callbacks.amp_recorder import AmpRecorder
from bert_lightning.captured import CapturedForward
from bert_lightning.console import Console
from bert_lightning.data.encoding import IGNORED_LABEL
from bert_lightning.errors import TrainingError
from bert_lightning.execution import DTYPES, Execution
from bert_lightning.graphs import Kind, Recording, Studio, kind_of, rounded_length


@pytest.fixture
def classifier(tiny_bert_folder):
    def make(**settings):
        return tiny_classifier(tiny_bert_folder, **{"execution": "auto", **settings})

    return make


@pytest.fixture
def captured(monkeypatch):
    """Let a CPU do what is chosen for a GPU."""

    def chosen(asked, trainer, model):
        dtype = DTYPES[trainer.precision_plugin.precision]
        return Execution("eager" if asked == "eager" else "captured", False, dtype)

    monkeypatch.setattr(module_of_classifier, "choose_execution", chosen)


def both(classifier, data, plugin, callbacks=lambda: (), settings=None, **options):
    """Train the same model in either way; return the two, with the rates of the steps."""
    trained = []
    for execution in ("eager", "auto"):
        seen = Rates()
        model = classifier(execution=execution, **(settings or {}))
        train(model, data, seen, *callbacks(), plugin=plugin(), **options)
        trained.append((model, seen))
    return trained


def assert_same_weights(ours, theirs, tolerance):
    for (name, a), b in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        if not name.endswith("key.bias"):  # its true gradient is 0
            torch.testing.assert_close(a, b, atol=tolerance, rtol=0, msg=name)


@pytest.mark.usefixtures("captured")
@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize(
    "clip",
    [
        {},
        {"gradient_clip_algorithm": "value"},
        {"gradient_clip_algorithm": "value", "gradient_clip_val": 0},
    ],
    ids=["norm", "value", "zero"],
)
def test_captured_training_equals_eager_training(classifier, accumulate, clip):
    data = batches(8, last=2)  # a short last batch, and a short last window
    settings = {"warmup_ratio": 0.25, "schedule": "linear", "learning_rate": 1e-4}
    options = {"accumulate_grad_batches": accumulate, "gradient_clip_val": 0.05, **clip}
    (eager, rates), (ours, our_rates) = both(
        classifier, data, Precision, settings=settings, **options
    )
    assert our_rates.rates == pytest.approx(rates.rates, rel=1e-6)
    assert our_rates.updates == rates.updates
    assert_same_weights(ours, eager, 1e-5)


@pytest.mark.usefixtures("captured")
@pytest.mark.parametrize(
    "options",
    [
        {"label_smoothing": 0.1, "class_weights": [1.0, 2.0, 0.5, 1.0]},
        {"layer_decay": 0.8},
        {"frozen_layers": 1},
        {"gradient_checkpointing": True},
    ],
    ids=["loss", "layer_decay", "frozen", "checkpointing"],
)
def test_options_of_training_are_kept(classifier, options):
    settings = {"learning_rate": 1e-4, **options}
    (eager, _), (ours, _) = both(classifier, batches(6, last=1), Precision, settings=settings)
    assert_same_weights(ours, eager, 1e-5)
    start = classifier(**settings)
    for after, before in zip(ours.parameters(), start.parameters(), strict=True):
        if not after.requires_grad:
            assert torch.equal(after, before)


@pytest.mark.usefixtures("captured")
def test_a_step_with_overflow_is_skipped_counted_and_does_not_move_the_schedule(classifier):
    recorder = AmpRecorder(None, Console())
    settings = AmpSettings(init_scale=1024.0)
    model, seen = classifier(warmup_ratio=0.5), Rates()
    plugin = AmpPrecision("16-mixed", "cpu", settings)
    data = batches(8)
    train(model, data, Poison(3, 5), recorder, seen, plugin=plugin)
    assert recorder.skipped_steps == [3, 5]
    assert recorder.steps == 8
    assert recorder.loss_scale == 256.0
    assert seen.updates == [1, 2, 2, 3, 3, 4, 5, 6]
    assert seen.rates[2] == seen.rates[1]
    kept = [batch for number, batch in enumerate(data, 1) if number not in (3, 5)]
    other, rates = classifier(warmup_ratio=4 / 6), Rates()
    train(other, kept, rates, plugin=AmpPrecision("16-mixed", "cpu", settings))
    assert [seen.rates[i] for i in (0, 1, 3, 5, 6, 7)] == pytest.approx(rates.rates)
    assert_same_weights(model, other, 2e-4)  # fp16 rounds otherwise under another scale


@pytest.mark.parametrize("execution", ["captured", "compiled"])
def test_what_is_not_finite_is_named_though_its_module_was_not_called(
    classifier, execution, monkeypatch
):
    class Spoil(L.Callback):
        def on_train_start(self, trainer, pl_module):
            with torch.no_grad():  # finite, but not in float16
                pl_module.network.bert.encoder.layer[0].intermediate.dense.bias.fill_(1e5)

    chosen = Execution(execution, False, torch.float16)
    monkeypatch.setattr(module_of_classifier, "choose_execution", lambda *_: chosen)
    settings = AmpSettings(init_scale=1024.0, max_consecutive_skips=1)
    named = r"output of bert\.encoder\.layer\.0\.intermediate\.dense; every row of the batch"
    with pytest.raises(TrainingError, match=named):
        train(classifier(), batches(8), Spoil(), AmpRecorder(None, Console()), settings=settings)


@pytest.mark.usefixtures("captured")
def test_a_captured_run_goes_on_with_the_optimizer_of_an_eager_one(classifier, tmp_path):
    data = batches(4)
    settings = {"learning_rate": 1e-4}
    whole = classifier(execution="eager", **settings)
    train(whole, data, plugin=Precision(), max_epochs=2)
    for first, second in (("eager", "auto"), ("auto", "eager"), ("auto", "auto")):
        break_at = tmp_path / f"{first}_{second}.ckpt"
        model = classifier(execution=first, **settings)
        train(model, data, Saved(break_at), plugin=Precision(), max_epochs=1)
        resumed = classifier(execution=second, **settings)
        train(resumed, data, plugin=Precision(), max_epochs=2, ckpt_path=break_at)
        assert_same_weights(resumed, whole, 1e-5)


@pytest.mark.usefixtures("captured")
def test_weights_that_a_callback_changes_are_used_in_the_next_step(classifier):
    class Zeroes(L.Callback):
        def on_train_batch_end(self, trainer, pl_module, *_):
            with torch.no_grad():
                pl_module.network.classifier.weight.zero_()
                pl_module.network.classifier.bias.zero_()

    class Losses(L.Callback):
        def __init__(self):
            self.kept = []

        def on_train_batch_end(self, trainer, pl_module, *_):
            self.kept.append(float(pl_module._logged["train/loss"]))

    losses, model = Losses(), classifier(learning_rate=0.1, dropout=0.0)
    train(model, batches(6), losses, Zeroes(), plugin=AmpPrecision("bf16-mixed", "cpu"))
    assert losses.kept[1:] == pytest.approx([math.log(4)] * 5, abs=1e-3)


@pytest.mark.parametrize("name", ["forward", "row_losses", "training_step"])
def test_a_subclass_says_what_it_has_replaced(classifier, name):
    model = classifier()
    assert model.replaced_methods == []
    model.__class__ = type("Own", (type(model),), {name: lambda self, *args: None})
    assert model.replaced_methods == [name]


class Saved(L.Callback):
    """Writes a checkpoint at the end."""

    def __init__(self, path):
        self.path = path

    def on_train_end(self, trainer, pl_module):
        trainer.save_checkpoint(self.path)


def test_logits_do_not_depend_on_rows_that_fill_a_batch_up(classifier):
    model = classifier()
    model.network.eval()
    forward = CapturedForward(model.network, torch.float32, 512, Studio(torch.device("cpu")))
    data = batches(2, last=2)
    for batch in data:
        expected = model.network(
            input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]
        ).logits
        torch.testing.assert_close(forward(batch), expected)
    assert list(forward._shapes) == [Kind(4, 12, is_full=False)]


def test_a_long_batch_without_padding_needs_no_mask():
    def batch(rows, length, is_full=True):
        return {"input_ids": torch.ones(rows, length), "is_full": is_full}

    assert kind_of(batch(4, 64), 4, 512) == Kind(4, 64, is_full=True)
    assert not kind_of(batch(4, 64, is_full=False), 4, 512).is_full
    assert not kind_of(batch(4, 63), 4, 512).is_full  # not worth kernels of its own
    assert not kind_of(batch(3, 64), 4, 512).is_full  # a row that fills up is padding
    assert kind_of(batch(4, 65), 4, 512) == Kind(4, 68, is_full=False)
    assert not kind_of({"input_ids": torch.ones(4, 64)}, 4, 512).is_full  # it does not say


@pytest.mark.usefixtures("captured")
@pytest.mark.parametrize("accumulate", [1, 3])
def test_batches_without_padding_are_trained_alike_without_a_mask(
    classifier, accumulate, monkeypatch
):
    monkeypatch.setattr(graphs, "UNMASKED_FROM", 8)
    masks = []
    forward = captured_module.FunctionalBert.__call__

    def noted(self, ids, mask, *args, **kwargs):
        masks.append(mask is None)
        return forward(self, ids, mask, *args, **kwargs)

    monkeypatch.setattr(captured_module.FunctionalBert, "__call__", noted)
    data = batches(6, last=2)
    for number, made in enumerate(data):
        made["is_full"] = number % 2 == 0
        if made["is_full"]:
            made["attention_mask"] = torch.ones_like(made["attention_mask"])
    settings = {"learning_rate": 1e-4, "dropout": 0.0}
    options = {"accumulate_grad_batches": accumulate}
    (eager, _), (ours, _) = both(classifier, data, Precision, settings=settings, **options)
    assert_same_weights(ours, eager, 1e-5)
    # both kinds at the start, so that neither is compiled in the midst of the run
    assert masks[:2] == [True, False]
    assert masks[2:] == [made["is_full"] for made in data[:-1]] + [False]


def test_work_is_launched_as_often_as_was_said_then_recorded_once_and_replayed():
    done = []

    class Graph:
        def replay(self):
            done.append("replay")

    class Recorder:
        def record(self, work):
            done.append("record")
            return Graph()

    recording = Recording(lambda: done.append("launch"), Recorder(), launches=2)
    for _ in range(4):
        recording()
    assert done == ["launch", "launch", "record", "replay", "replay"]
    assert recording.is_recorded


def test_checkpointing_leaves_no_hook_that_would_hinder_capture(classifier):
    network = classifier(gradient_checkpointing=True).network
    assert not [name for name, module in network.named_modules() if module._forward_hooks]


def test_lengths_are_rounded_little_and_few_remain():
    lengths = {rounded_length(length, 512) for length in range(1, 513)}
    assert len(lengths) == 96
    for length in range(1, 513):
        assert length <= rounded_length(length, 512) <= max(length * 1.0625, length + 1)
    assert rounded_length(119, 120) == 120
    assert rounded_length(125, 127) == 127  # no position beyond the model's


@pytest.mark.usefixtures("captured")
@pytest.mark.parametrize("ignored", [2, 4])
def test_rows_without_a_label_count_as_in_the_eager_path(classifier, ignored):
    data = batches(4)
    data[1]["labels"][:ignored] = IGNORED_LABEL
    settings = {"learning_rate": 1e-4}
    (eager, _), (ours, _) = both(classifier, data, Precision, settings=settings)
    assert_same_weights(ours, eager, 1e-5)


class Seen(L.Callback):
    """Keeps what the training step returns; breaks off after a batch."""

    def __init__(self, last=None):
        self.losses, self.last = [], last

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.losses.append(float(outputs["loss"]))
        if batch_idx == self.last:
            raise ValueError("broken off")


@pytest.mark.usefixtures("captured")
@pytest.mark.parametrize("accumulate", [1, 2])
def test_callbacks_get_the_loss_of_their_own_batch(classifier, accumulate):
    seen = {}
    for execution in ("eager", "auto"):
        seen[execution] = Seen()
        model = classifier(execution=execution)
        options = {"plugin": Precision(), "accumulate_grad_batches": accumulate}
        train(model, batches(5, last=2), seen[execution], **options)
    assert seen["auto"].losses == pytest.approx(seen["eager"].losses, abs=1e-4)


@pytest.mark.usefixtures("captured")
def test_a_model_is_trained_again_after_a_run_that_was_broken_off(classifier):
    trained = []
    for execution in ("eager", "auto"):
        model = classifier(execution=execution, learning_rate=1e-4)
        with pytest.raises(ValueError, match="broken off"):
            train(model, batches(4), Seen(last=1), plugin=Precision())
        train(model, batches(4), plugin=Precision())
        trained.append(model)
    assert_same_weights(trained[1], trained[0], 1e-5)


@pytest.mark.parametrize("execution", ["captured", "compiled"])
def test_a_trained_model_is_an_ordinary_one(classifier, execution, monkeypatch):
    chosen = Execution(execution, False)
    monkeypatch.setattr(module_of_classifier, "choose_execution", lambda *_: chosen)
    model, data = classifier(), batches(2)
    train(model, data, plugin=Precision())
    model.eval()
    with torch.no_grad():
        expected = model.network(data[0]["input_ids"], data[0]["attention_mask"]).logits
        found = model.predict_step(data[0], 0)["probabilities"]
        torch.testing.assert_close(found, expected.softmax(-1))
        halves = model.to(torch.bfloat16)(data[0]["input_ids"], data[0]["attention_mask"])
    assert halves.dtype == torch.bfloat16


@pytest.mark.usefixtures("captured")
@pytest.mark.parametrize("frozen", ["query", "key"])
def test_query_key_and_value_are_trained_one_by_one(classifier, frozen):
    trained = []
    for execution in ("eager", "auto"):
        model = classifier(execution=execution, learning_rate=1e-4)
        attention = model.network.bert.encoder.layer[0].attention.self
        getattr(attention, frozen).requires_grad_(False)
        train(model, batches(4), plugin=Precision())
        trained.append(model)
    assert_same_weights(trained[1], trained[0], 1e-5)


@pytest.mark.usefixtures("captured")
def test_a_network_in_evaluation_mode_has_no_dropout(classifier):
    trained = []
    for execution in ("eager", "auto"):
        model = classifier(execution=execution, learning_rate=1e-4, dropout=0.5)
        model.network.eval()
        train(model, batches(4), plugin=Precision())
        trained.append(model)
    assert_same_weights(trained[1], trained[0], 1e-5)


@pytest.mark.usefixtures("captured")
@pytest.mark.parametrize("kind", [float, torch.tensor])
def test_settings_that_a_callback_puts_in_place_are_used_from_the_next_step_on(
    classifier, kind, monkeypatch
):
    class Settles(L.Callback):
        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
            if batch_idx == 4:
                for group in trainer.optimizers[0].param_groups:
                    group["lr"], group["weight_decay"] = kind(1e-3), 0.5

    class Graph:
        """Replays what was recorded, with the settings of that time."""

        def __init__(self, work):
            self.work = work
            self.training = getattr(work, "__self__", None)
            self.groups = self._groups()

        def _groups(self):
            return [dict(g) for g in self.training.optimizer.param_groups] if self.training else []

        def replay(self):
            now = self._groups()
            for number, group in enumerate(self.groups):
                self.training.optimizer.param_groups[number].update(group)
            self.work()
            for number, group in enumerate(now):
                self.training.optimizer.param_groups[number].update(group)

    monkeypatch.setattr(Studio, "record", lambda self, work: Graph(work))
    settings = {"learning_rate": 1e-4}
    (eager, _), (ours, _) = both(
        classifier, batches(8), Precision, lambda: (Settles(),), settings=settings
    )
    assert_same_weights(ours, eager, 2e-5)


def test_evaluation_sees_weights_put_in_place_of_those_that_were_recorded(classifier, monkeypatch):
    class Graph:
        """Replays what was recorded, with the weights that lay there."""

        def __init__(self, work):
            self.work, self.there = work, [p.data for p in network.parameters()]

        def replay(self):
            now = [p.data for p in network.parameters()]
            for parameter, weight in zip(network.parameters(), self.there, strict=True):
                parameter.data = weight
            self.work()
            for parameter, weight in zip(network.parameters(), now, strict=True):
                parameter.data = weight

    monkeypatch.setattr(Studio, "record", lambda self, work: Graph(work))
    monkeypatch.setattr(captured_module, "EVALUATION_LAUNCHES", 1)
    network = classifier().network.eval()
    forward = CapturedForward(network, torch.float32, 512, Studio(torch.device("cpu")))
    batch = batches(1)[0]
    before = [forward(batch) for _ in range(3)][-1]
    bias = network.classifier.bias
    bias.data = bias.data + 1.0
    torch.testing.assert_close(forward(batch), before + 1.0)
