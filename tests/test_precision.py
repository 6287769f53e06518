from unittest.mock import Mock

import pytest
import torch
from lightning.pytorch.strategies import DeepSpeedStrategy, FSDPStrategy

from bert_lightning import precision
from bert_lightning.amp import AmpPrecision, AmpSettings, FSDPAmpPrecision
from bert_lightning.errors import ConfigError
from bert_lightning.precision import (
    MatmulSettings,
    check_precision,
    cpu_computes_bf16,
    effective_precision,
    precision_plugin,
)


@pytest.fixture
def native(monkeypatch):
    """Say whether this CPU computes bf16."""
    return lambda answer: monkeypatch.setattr(precision, "cpu_computes_bf16", lambda: answer)


@pytest.mark.parametrize("asked", ["16-mixed", "16", 16, "bf16-mixed", "bf16", "32-true", 32, None])
def test_a_gpu_takes_every_precision_as_it_is(native, asked):
    native(False)
    assert effective_precision(asked, on_cpu=False) == (asked, None)


@pytest.mark.parametrize("asked", [None, 32, "32", "32-true", 64, "64-true", "bf16-true"])
@pytest.mark.parametrize("answer", [True, False])
def test_a_cpu_takes_what_is_not_mixed_as_it_is(native, asked, answer):
    native(answer)
    assert effective_precision(asked, on_cpu=True) == (asked, None)


@pytest.mark.parametrize("asked", ["16-mixed", "16", 16])
def test_fp16_runs_as_bf16_on_a_cpu_that_computes_it(native, asked):
    native(True)
    taken, line = effective_precision(asked, on_cpu=True)
    assert taken == "bf16-mixed"
    assert line.startswith("16-mixed runs as bf16-mixed here")


@pytest.mark.parametrize("asked", ["bf16-mixed", "bf16"])
def test_bf16_runs_as_it_is_on_a_cpu_that_computes_it(native, asked):
    native(True)
    assert effective_precision(asked, on_cpu=True) == ("bf16-mixed", None)


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("16-mixed", "16-mixed"),
        (16, "16-mixed"),
        ("bf16-mixed", "bf16-mixed"),
        ("bf16", "bf16-mixed"),
    ],
)
def test_mixed_precision_runs_as_float32_on_a_cpu_that_would_emulate_bf16(native, asked, name):
    native(False)
    taken, line = effective_precision(asked, on_cpu=True)
    assert taken == "32-true"
    assert line == f"{name} runs as 32 here: this CPU has no native bf16"


@pytest.mark.parametrize(("avx512", "amx"), [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_an_x86_cpu_computes_bf16_with_avx512_or_amx(monkeypatch, avx512, amx):
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: bool(avx512))
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: bool(amx))
    assert cpu_computes_bf16() is bool(avx512 or amx)


@pytest.mark.parametrize(("capability", "answer"), [("SVE256", True), ("DEFAULT", False)])
@pytest.mark.parametrize("machine", ["arm64", "aarch64"])
def test_an_arm_cpu_computes_bf16_with_sve(monkeypatch, machine, capability, answer):
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    assert cpu_computes_bf16() is answer


# --- plugins ----------------------------------------------------------------------------------


def test_only_what_lightning_cannot_do_is_exchanged():
    settings = AmpSettings(init_scale=256.0)
    assert precision_plugin("32-true", True, "auto", settings) is None
    assert precision_plugin("bf16-true", True, "auto", settings) is None
    plugin = precision_plugin("bf16-mixed", True, "ddp", settings)
    assert isinstance(plugin, AmpPrecision)
    assert (plugin.precision, plugin.device, plugin.scaler) == ("bf16-mixed", "cpu", None)


@pytest.mark.parametrize("asked", ["16-mixed", 16])
def test_a_gpu_gets_the_scaled_plugin_with_its_settings(monkeypatch, asked):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.amp.common.amp_definitely_not_available", lambda: False)
    plugin = precision_plugin(asked, False, "ddp", AmpSettings(init_scale=256.0))
    assert isinstance(plugin, AmpPrecision)
    assert (plugin.precision, plugin.device) == ("16-mixed", "cuda")
    assert plugin.scaler.state_dict()["scale"] == 256
    sharded = precision_plugin(asked, False, "fsdp", AmpSettings(init_scale=256.0))
    assert isinstance(sharded, FSDPAmpPrecision)
    assert sharded.scaler.state_dict()["scale"] == 256


@pytest.mark.parametrize("asked", [32, None, "32-true", "bf16-mixed"])
def test_fsdp_clips_by_our_plugin_in_any_precision(asked):
    plugin = precision_plugin(asked, False, "fsdp_cpu_offload", AmpSettings())
    assert isinstance(plugin, FSDPAmpPrecision)


def test_a_strategy_that_is_an_object_counts_as_its_name_does(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    for strategy in ("deepspeed_stage_2", Mock(spec=DeepSpeedStrategy)):
        assert precision_plugin("bf16-mixed", False, strategy, AmpSettings()) is None
    for strategy in ("fsdp", Mock(spec=FSDPStrategy)):
        plugin = precision_plugin("bf16-mixed", False, strategy, AmpSettings())
        assert isinstance(plugin, FSDPAmpPrecision)


# --- what is refused --------------------------------------------------------------------------


def test_deepspeed_is_refused_under_a_loss_scale_by_name():
    with pytest.raises(ConfigError, match="found deepspeed_stage_2, which scales by its own"):
        check_precision("16-mixed", False, "deepspeed_stage_2")
    check_precision("bf16-mixed", True, "deepspeed_stage_2")


@pytest.mark.parametrize("asked", ["bf16-mixed", "bf16", "bf16-true"])
def test_bf16_that_a_gpu_only_emulates_is_refused_with_what_fits(monkeypatch, asked):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda: (7, 5))
    monkeypatch.setattr("torch.cuda.get_device_name", lambda: "Tesla T4")
    monkeypatch.setattr(
        "torch.cuda.is_bf16_supported", lambda including_emulation=True: including_emulation
    )
    with pytest.raises(ConfigError) as error:
        check_precision(asked, False, "auto")
    assert str(error.value).startswith(
        f"trainer.precision: expected a precision that this GPU computes – found {asked}, which"
        " Tesla T4 (compute capability 7.5) only emulates"
    )
    assert "--trainer.precision 16-mixed" in str(error.value)
    check_precision("16-mixed", False, "auto")
    check_precision(asked, True, "auto")


# --- TF32 -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tf32", "old", "new"), [(True, True, "tf32"), (False, False, "ieee")])
def test_tf32_is_set_so_that_older_and_newer_readers_see_the_same(tf32, old, new):
    MatmulSettings(tf32=tf32).apply()
    assert torch.backends.cuda.matmul.allow_tf32 is old
    assert torch.backends.cuda.matmul.fp32_precision == new
    assert torch.get_float32_matmul_precision() == ("high" if tf32 else "highest")
