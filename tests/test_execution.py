import types

import pytest
import torch
from lightning.pytorch import Callback, LightningModule
from lightning.pytorch.callbacks import BaseFinetuning, GradientAccumulationScheduler
from lightning.pytorch.plugins.precision import HalfPrecision, MixedPrecision, Precision
from lightning.pytorch.strategies import DDPStrategy, FSDPStrategy, SingleDeviceStrategy
from scaled_runs import tiny_classifier
from torch import nn

from bert_lightning import execution
from bert_lightning.amp import AmpPrecision
from bert_lightning.callbacks.amp_recorder import AmpRecorder
from bert_lightning.console import Console
from bert_lightning.errors import ConfigError
from bert_lightning.execution import choose_execution

CUDA = torch.device("cuda", 0)


class ClipsGradients(Callback):
    def on_after_backward(self, trainer, pl_module):
        pass


class BertForSequenceClassification(nn.Module):
    config = types.SimpleNamespace(hidden_size=768)

    def __init__(self):
        super().__init__()
        self.classifier = nn.Linear(2, 2)


class Model:
    configure_gradient_clipping = LightningModule.configure_gradient_clipping

    def __init__(self):
        self.fused_optimizer = None
        self.replaced_methods = []
        self.network = BertForSequenceClassification()


@pytest.fixture
def model():
    return Model()


def trainer(device=CUDA, strategy=None, plugin=None, callbacks=(), anomaly=False):
    return types.SimpleNamespace(
        strategy=strategy or SingleDeviceStrategy(device=device),
        precision_plugin=plugin or Precision(),
        callbacks=list(callbacks),
        _detect_anomaly=anomaly,
    )


@pytest.fixture(autouse=True)
def triton(monkeypatch):
    monkeypatch.setattr(execution, "has_triton", lambda: True)
    monkeypatch.setattr(DDPStrategy, "root_device", CUDA)
    monkeypatch.setattr(FSDPStrategy, "root_device", CUDA)


def test_one_cuda_device_is_captured_in_the_type_of_its_precision(model):
    for plugin, dtype in (
        (Precision(), torch.float32),
        (AmpPrecision("16-mixed", "cuda"), torch.float16),
        (MixedPrecision("bf16-mixed", "cuda"), torch.bfloat16),
    ):
        chosen = choose_execution("auto", trainer(plugin=plugin), model)
        assert (chosen.name, chosen.compiles, chosen.dtype) == ("captured", True, dtype)
        assert chosen.line == "captured"


def test_own_callbacks_do_not_hinder_capture(model):
    recorder = AmpRecorder(None, Console())
    chosen = choose_execution("auto", trainer(callbacks=[recorder, Callback()]), model)
    assert chosen.name == "captured"


@pytest.mark.parametrize(
    "register",
    [
        "register_forward_hook",
        "register_forward_pre_hook",
        "register_full_backward_hook",
        "register_full_backward_pre_hook",
    ],
)
def test_hooks_of_a_users_module_are_called(model, register):
    getattr(model.network.classifier, register)(lambda *_: None)
    chosen = choose_execution("auto", trainer(), model)
    assert chosen.name == "eager"
    assert "a hook of classifier, which would not be called" in chosen.reason
    with pytest.raises(ConfigError, match="a hook of classifier"):
        choose_execution("compiled", trainer(), model)


def test_what_a_subclass_replaces_is_called(model):
    model.replaced_methods = ["row_losses"]
    chosen = choose_execution("auto", trainer(), model)
    assert chosen.line == "compiled – row_losses of Model, which would not be called"


def test_a_decoder_is_launched(model):
    model.network.config = types.SimpleNamespace(hidden_size=768, is_decoder=True)
    assert choose_execution("auto", trainer(), model).line.startswith("eager – a decoder")


class Adapted(nn.Linear):
    """A layer that computes something else with its weights."""


def test_parts_of_a_users_own_are_called(model):
    nn.utils.parametrizations.orthogonal(model.network.classifier)
    assert "classifier of type ParametrizedLinear, which would not be called" in (
        choose_execution("auto", trainer(), model).line
    )
    model.network.classifier = Adapted(2, 2)
    assert choose_execution("auto", trainer(), model).line == (
        "eager – classifier of type Adapted, which would not be called"
    )


def test_without_triton_a_step_is_captured_as_it_is(model, monkeypatch):
    monkeypatch.setattr(execution, "has_triton", lambda: False)
    chosen = choose_execution("auto", trainer(), model)
    assert (chosen.name, chosen.compiles) == ("captured", False)
    assert chosen.line == "captured – not compiled: no Triton to compile with"
    assert choose_execution("auto", trainer(strategy=DDPStrategy()), model).name == "eager"


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"strategy": DDPStrategy()}, "gradients that are summed over processes"),
        (
            {"callbacks": [ClipsGradients()]},
            "ClipsGradients.on_after_backward, which would find no gradients",
        ),
        ({"callbacks": [BaseFinetuning()]}, "BaseFinetuning, which adds weights to the optimizer"),
        (
            {"callbacks": [GradientAccumulationScheduler({0: 1, 1: 2})]},
            "GradientAccumulationScheduler, which changes the batches of a step",
        ),
        ({"plugin": MixedPrecision("16-mixed", "cuda")}, "the loss scale of MixedPrecision"),
    ],
)
def test_what_cannot_be_captured_is_compiled_and_the_reason_is_said(model, settings, reason):
    chosen = choose_execution("auto", trainer(**settings), model)
    assert chosen.line == f"compiled – {reason}"
    with pytest.raises(ConfigError, match=r"model\.execution: .* found captured, with"):
        choose_execution("captured", trainer(**settings), model)


def test_an_optimizer_in_parts_is_not_captured(model):
    model.fused_optimizer = False
    assert choose_execution("auto", trainer(), model).line == (
        "compiled – model.fused_optimizer false"
    )


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"device": torch.device("cpu")}, "no CUDA device"),
        ({"strategy": FSDPStrategy()}, "strategy FSDPStrategy"),
        ({"plugin": HalfPrecision("16-true")}, "precision 16-true of HalfPrecision"),
        ({"anomaly": True}, "trainer.detect_anomaly true"),
    ],
)
def test_what_cannot_be_compiled_is_launched_and_the_reason_is_said(model, settings, reason):
    chosen = choose_execution("auto", trainer(**settings), model)
    assert chosen.name == "eager"
    assert reason in chosen.line


def test_all_reasons_against_what_was_asked_are_said_at_once(model):
    asked = trainer(strategy=FSDPStrategy(), anomaly=True)
    with pytest.raises(ConfigError, match=r"strategy FSDPStrategy; trainer\.detect_anomaly true"):
        choose_execution("compiled", asked, model)


def test_a_cpu_compiles_if_it_is_asked_to(model):
    on_cpu = trainer(device=torch.device("cpu"))
    assert choose_execution("compiled", on_cpu, model).name == "compiled"
    with pytest.raises(ConfigError, match="no CUDA device"):
        choose_execution("captured", on_cpu, model)


def test_a_cpu_does_not_compile_layers_that_draw_dropout_of_attention_again(tiny_bert_folder):
    on_cpu = trainer(device=torch.device("cpu"))
    model = tiny_classifier(tiny_bert_folder, gradient_checkpointing=True)
    assert choose_execution("compiled", on_cpu, model).name == "compiled"
    model = tiny_classifier(tiny_bert_folder, dropout=0.1, gradient_checkpointing=True)
    with pytest.raises(ConfigError, match="gradient_checkpointing with dropout of attention"):
        choose_execution("compiled", on_cpu, model)


def test_eager_is_always_possible(model):
    assert choose_execution("eager", trainer(), model).line == "eager"
