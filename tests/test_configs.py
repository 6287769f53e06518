import itertools
from pathlib import Path

import pytest
import yaml

BENCHMARK = "benchmark.yaml"  # of the command benchmark, tested there
CONFIGS = sorted(
    file
    for file in (Path(__file__).parent.parent / "configs").glob("*.yaml")
    if file.name != BENCHMARK
)
OVERLAYS = [file for file in CONFIGS if file.name != "base.yaml"]
OVERLAY_LINES = 15
PRECISIONS = {"fp32.yaml": 32, "amp.yaml": "16-mixed", "bf16.yaml": "bf16-mixed"}
STRATEGIES = {
    "ddp.yaml": "ddp",
    "ddp_static.yaml": "lightning.pytorch.strategies.DDPStrategy",
    "ddp_fp16_hook.yaml": "lightning.pytorch.strategies.DDPStrategy",
    "fsdp.yaml": "fsdp",
    "deepspeed.yaml": "deepspeed_stage_2",
}
MORE_DDP = ("ddp_static.yaml", "ddp_fp16_hook.yaml")
TRAINING = ("layerwise.yaml", "lowmem.yaml")


def _name(value):
    return value.name if isinstance(value, Path) else value


def _content(config):
    return yaml.safe_load(config.read_text(encoding="utf-8"))


def _flat(content, prefix=""):
    """Return nested mappings as one, with dotted keys."""
    flat = {}
    for key, value in content.items():
        inner = _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {}
        flat |= inner or {f"{prefix}{key}": value}
    return flat


@pytest.fixture
def merged(run_cli):
    """Return what fit would use for some configs, as plain types."""

    def merge(*names):
        flags = [word for name in names for word in ("--config", name)]
        status, out, err = run_cli("fit", *flags, "--print_config")
        assert status == 0, err
        return yaml.safe_load(out)

    return merge


@pytest.mark.parametrize("config", CONFIGS, ids=_name)
def test_the_first_line_says_what_the_file_is_for(config):
    first = config.read_text(encoding="utf-8").splitlines()[0]
    assert first.startswith("# ")
    assert config.name == "base.yaml" or f"--config {config.name}" in first


@pytest.mark.parametrize("config", OVERLAYS, ids=_name)
def test_an_overlay_has_at_most_fifteen_lines(config):
    assert len(config.read_text(encoding="utf-8").splitlines()) <= OVERLAY_LINES


@pytest.mark.parametrize("config", OVERLAYS, ids=_name)
def test_an_overlay_repeats_no_value_of_base(config):
    base = _flat(_content(config.with_name("base.yaml")))
    assert _flat(_content(config)).items().isdisjoint(base.items())


@pytest.mark.parametrize("config", CONFIGS, ids=_name)
def test_every_config_parses_alone_and_all_its_values_arrive(config, merged):
    wanted = {key: str(value) for key, value in _flat(_content(config)).items()}
    found = {key: str(value) for key, value in _flat(merged(config.name)).items()}
    for key in ("save_every_seconds",):  # 300 comes back as 300.0
        if key in wanted:
            wanted[key], found[key] = float(wanted[key]), float(found[key])
    assert wanted.items() <= found.items()


@pytest.mark.parametrize(
    ("precision", "strategy"), list(itertools.product(PRECISIONS, STRATEGIES)), ids=_name
)
def test_precision_and_strategy_files_combine_in_either_order(precision, strategy, merged):
    trainer = merged(precision, strategy)["trainer"]
    assert trainer == merged(strategy, precision)["trainer"]
    assert trainer["precision"] == PRECISIONS[precision]
    name = trainer["strategy"]
    assert (name["class_path"] if isinstance(name, dict) else name) == STRATEGIES[strategy]


@pytest.mark.parametrize("config", ["fp32.yaml", "amp.yaml", "bf16.yaml", "debug.yaml", *TRAINING])
def test_a_config_fits_on_the_cpu(config, quick, run_cli, tmp_path):
    status, out, err = run_cli("fit", "--config", config, *quick)
    assert status == 0, err
    assert "test/accuracy" in out
    assert (tmp_path / "runs" / "1" / "checkpoints" / "best.ckpt").is_file()


@pytest.mark.slow  # tests of equal weights and of predictions have two processes, too
@pytest.mark.parametrize("config", ["ddp.yaml", *MORE_DDP])
def test_a_ddp_config_fits_on_two_processes(config, quick, run_process, tmp_path):
    status, out, err = run_process(
        *["fit", "--config", "amp.yaml", "--config", config, "--trainer.devices", "2"],
        *[*quick, "--trainer.limit_train_batches", "1"],
    )
    assert status == 0, err
    assert "8 rows × 2 devices × 1 accumulated = 16 rows a step, DDPStrategy" in out
    assert [run.name for run in (tmp_path / "runs").iterdir()] == ["1"]
    assert out.count("test/accuracy") == 1


@pytest.mark.parametrize("name", ["fsdp", "deepspeed"])
def test_what_shares_out_over_gpus_is_refused_in_words_on_a_cpu(name, quick, run_cli, tmp_path):
    status, out, err = run_cli("fit", "--config", "bf16.yaml", "--config", f"{name}.yaml", *quick)
    assert status == 1
    assert out == ""
    assert err.startswith("error: trainer.strategy: expected a strategy that runs on a CPU")
    assert f"found {name}, which needs GPUs" in err
    assert not (tmp_path / "runs").exists()


def test_all_precision_and_strategy_files_are_among_those_tested_here():
    known = {*PRECISIONS, *STRATEGIES, *TRAINING, "base.yaml", "debug.yaml"}
    assert {config.name for config in CONFIGS} == known
