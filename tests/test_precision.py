import pytest
import torch

from bert_lightning import precision
from bert_lightning.precision import cpu_computes_bf16, effective_precision


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
