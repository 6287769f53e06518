"""Every precision × strategy of configs/: where it runs, and why it is refused where it does not.

The table says what each pair does on one CPU process, on two (gloo) and on one GPU. Cells that
another test already runs are named there; of the others all refusals are in the normal suite,
and what runs is marked slow or gpu.
"""

import importlib.util
import itertools
import os

import pytest
from lightning.pytorch.cli import LightningCLI
from lightning.pytorch.strategies import StrategyRegistry

PRECISIONS = ("fp32", "amp", "bf16")
STRATEGIES = ("single", "ddp", "ddp_static", "ddp_fp16_hook", "fsdp", "deepspeed")
PLACES = ("1 CPU", "2 CPU processes", "1 GPU")
RUNS = "runs"
NEEDS_GPUS = "expected a strategy that runs on a CPU – found {strategy}, which needs GPUs"
OWN_SCALE = "expected one whose loss scale the amp keys set"
NO_PACKAGE = "expected the package deepspeed for deepspeed_stage_2 – found none"
HAS_DEEPSPEED = importlib.util.find_spec("deepspeed") is not None
# strategy: what it does in each of PLACES
TABLE = {
    "single": (RUNS, RUNS, RUNS),  # two processes without a strategy file are ddp
    "ddp": (RUNS, RUNS, RUNS),
    "ddp_static": (RUNS, RUNS, RUNS),
    "ddp_fp16_hook": (RUNS, RUNS, RUNS),  # gloo adds fp16, too
    "fsdp": (NEEDS_GPUS, NEEDS_GPUS, RUNS),
    "deepspeed": (NEEDS_GPUS, NEEDS_GPUS, RUNS if HAS_DEEPSPEED else NO_PACKAGE),
}
EXCEPTIONS = {("amp", "deepspeed", "1 GPU"): OWN_SCALE} if HAS_DEEPSPEED else {}
CLASSES = {
    "ddp": "DDPStrategy",
    "ddp_static": "DDPStrategy",
    "ddp_fp16_hook": "DDPStrategy",
    "fsdp": "FSDPStrategy",
    "deepspeed": "DeepSpeedStrategy",
}
RUN_ELSEWHERE = {  # tests/test_configs.py
    *((precision, "single", "1 CPU") for precision in PRECISIONS),
    *(("amp", strategy, "2 CPU processes") for strategy in ("ddp", "ddp_static", "ddp_fp16_hook")),
}


def outcome(precision, strategy, place):
    plain = TABLE[strategy][PLACES.index(place)].format(strategy=strategy)
    return EXCEPTIONS.get((precision, strategy, place), plain)


def _cells():
    for cell in itertools.product(PRECISIONS, STRATEGIES, PLACES):
        if cell in RUN_ELSEWHERE:
            continue
        marks = []
        if cell[2] == "1 GPU":
            marks.append(pytest.mark.gpu)
        elif outcome(*cell) == RUNS:
            marks.append(pytest.mark.slow)
        yield pytest.param(*cell, marks=marks, id=" ".join(cell))


@pytest.mark.parametrize(("precision", "strategy", "place"), list(_cells()))
def test_a_pair_runs_or_is_refused_as_the_table_says(
    precision, strategy, place, run_cli, run_process, quick, tmp_path
):
    devices = "2" if place.startswith("2") else "1"
    accelerator = "gpu" if place.endswith("GPU") else "cpu"
    words = ["fit", "--config", f"{precision}.yaml", *quick, "--trainer.devices", devices]
    words += ["--trainer.accelerator", accelerator]
    words += [] if strategy == "single" else ["--config", f"{strategy}.yaml"]
    expected = outcome(precision, strategy, place)
    if expected != RUNS:
        status, out, err = run_cli(*words)
        assert (status, out) == (1, "")
        assert err.startswith("error: trainer.strategy: expected ")
        assert expected in err
        assert not (tmp_path / "runs").exists()
        return
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0") if accelerator == "gpu" else ""
    status, out, err = run_process(*words, env={"CUDA_VISIBLE_DEVICES": visible})
    assert status == 0, err
    alone = "SingleDeviceStrategy" if devices == "1" else "DDPStrategy"
    assert f"rows a step, {CLASSES.get(strategy, alone)}" in out
    assert out.count("test/accuracy") == 1
    assert [run.name for run in (tmp_path / "runs").iterdir()] == ["1"]


def test_the_table_has_every_strategy_file(request):
    configs = request.config.rootpath / "configs"
    others = {"base", "benchmark", "debug", "layerwise", "lowmem", *PRECISIONS}
    named = {file.stem for file in configs.glob("*.yaml")} - others
    assert named == set(STRATEGIES) - {"single"} == set(TABLE) - {"single"}


class Built(Exception):
    """The arguments that Lightning's trainer would get."""


def _exchanged(strategy):
    """Return the class of the plugin that takes the place of bf16-mixed on a GPU."""
    if strategy.startswith("deepspeed"):
        return None  # only Lightning's own plugin steps through DeepSpeed's engine
    return "FSDPAmpPrecision" if strategy.startswith("fsdp") else "AmpPrecision"


STARTED_AS_COMMANDS = [
    name
    for name in ["auto", *StrategyRegistry.available_strategies()]
    if not name.endswith(("_spawn", "_fork", "_notebook"))
]


@pytest.mark.parametrize("strategy", STARTED_AS_COMMANDS)
def test_a_strategy_gets_the_precision_plugin_that_it_can_step_with(
    strategy, run_cli, quick, monkeypatch
):
    def build(self, **arguments):
        raise Built(arguments)

    monkeypatch.setattr("bert_lightning.commands.run.check_devices", lambda *_: None)
    monkeypatch.setattr("bert_lightning.commands.run.check_precision", lambda *_: None)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr(LightningCLI, "instantiate_trainer", build)
    words = ["--trainer.accelerator", "gpu", "--trainer.precision", "bf16-mixed"]
    with pytest.raises(Built) as built:
        run_cli("fit", *quick, *words, "--trainer.strategy", strategy)
    (arguments,) = built.value.args
    plugins = [type(plugin).__name__ for plugin in arguments["plugins"] or []]
    expected = _exchanged(strategy)
    assert plugins == [*([expected] if expected else []), "SafeCheckpointIO"]
    assert (arguments["precision"] is None) is bool(expected)
