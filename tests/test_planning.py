import csv
import json
import os

import pytest

from bert_lightning import planning
from bert_lightning.amp import AmpSettings
from bert_lightning.planning import count_steps, device_path

EPOCHS = ("--trainer.max_epochs", "2")


@pytest.fixture
def small(news_folder, tiny_bert_folder):
    """Arguments of a fit of eight batches an epoch."""
    return [
        *("--data.path", news_folder, "--model.pretrained", tiny_bert_folder),
        *("--data.batch_size", "8", "--trainer.log_every_n_steps", "1"),
    ]


@pytest.fixture
def planned(run_cli, tmp_path):
    """Plan and return the numbers."""

    def run(*args, status=0):
        result = run_cli("plan", *args, "--output", "plan.json")
        assert result.status == status, result.err
        return json.loads((tmp_path / "plan.json").read_text(encoding="utf-8"))

    return run


def _files(folder):
    return sorted(path for path in folder.rglob("*"))


def _optimizer_steps(run):
    with (run / "metrics.csv").open(encoding="utf-8") as file:
        counts = [row["train/optimizer_steps"] for row in csv.DictReader(file)]
    return int(max(float(count) for count in counts if count))


# --- steps ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        (EPOCHS, 16),
        ((*EPOCHS, "--trainer.accumulate_grad_batches", "3"), 6),
        ((*EPOCHS, "--trainer.limit_train_batches", "5", "--trainer.accumulate_grad_batches=2"), 6),
        ((*EPOCHS, "--trainer.limit_train_batches", "0.4"), 6),
        ((*EPOCHS, "--trainer.max_steps", "5", "--trainer.accumulate_grad_batches", "3"), 5),
        (("--trainer.max_epochs", "null", "--trainer.max_steps", "11"), 11),
        ((*EPOCHS, "--trainer.overfit_batches", "3"), 6),
        ((*EPOCHS, "--data.tokens_per_batch", "150"), None),
    ],
)
def test_the_steps_are_those_of_a_real_fit(small, planned, run_cli, tmp_path, settings, steps):
    plan = planned(*small, *settings)
    status, _, err = run_cli("fit", *small, *settings, "--test_after_fit", "false")
    assert status == 0, err
    assert plan["steps"] == _optimizer_steps(tmp_path / "runs" / "1")
    assert plan["steps"] == steps or steps is None


@pytest.mark.parametrize(
    ("arguments", "steps"),
    [
        ((10, 1.0, 4, 3, -1), (10, 3, 9, 9)),
        ((10, 7, 4, 3, -1), (7, 2, 6, 6)),
        ((10, 70, 4, 3, 8), (10, 3, 9, 8)),
        ((10, 0.05, 1, 3, -1), (0, 0, 0, 0)),
        ((10, 1.0, 1, -1, 25), (10, 10, None, 25)),
        ((10, 1.0, 1, 0, -1), (10, 10, 0, 0)),
        ((10, 1.0, 1, 3, 0), (10, 10, 30, 0)),
    ],
)
def test_steps_are_counted_as_lightning_does(arguments, steps):
    assert tuple(count_steps(*arguments)) == steps


def test_the_rates_are_those_of_a_real_fit(small, planned, run_cli, tmp_path):
    settings = (*EPOCHS, "--model.warmup_ratio", "0.25", "--model.learning_rate", "0.004")
    plan = planned(*small, *settings)
    assert run_cli("fit", *small, *settings, "--test_after_fit", "false").status == 0
    with (tmp_path / "runs/1/metrics.csv").open(encoding="utf-8") as file:
        rates = [float(row["train/learning_rate"] or 0) for row in csv.DictReader(file)]
    rates = [rate for rate in rates if rate]
    assert plan["warmup_steps"] == 4
    assert plan["rates"]["first"] == pytest.approx(rates[0], rel=1e-4)
    assert plan["rates"]["peak"] == pytest.approx(max(rates), rel=1e-4)
    assert plan["rates"]["last"] == pytest.approx(rates[-1], rel=1e-4)


def test_the_peak_is_named_where_it_is_neither_the_first_nor_the_last_step(small, planned):
    line = planned(*small, "--trainer.max_epochs", "1", "--model.warmup_ratio", "0.1")["lines"]
    assert line["schedule"].count("2e-05 at") == 1
    assert line["steps"] == "8 an epoch (8 batches), 1 epoch, 8 in all"
    line = planned(*small, "--trainer.max_epochs", "1", "--model.warmup_ratio", "0.5")["lines"]
    assert "2e-05 at step 4," in line["schedule"]


# --- what is written --------------------------------------------------------------------------


def test_nothing_is_written_and_no_run_folder_made(small, run_cli, tmp_path):
    before = _files(tmp_path)
    status, out, err = run_cli("plan", "--config", "amp.yaml", *small)
    assert (status, err) == (0, ""), err
    assert _files(tmp_path) == before
    names = [line[:9].strip() for line in out.splitlines()[1:]]
    expected = ["model", "data", "batch", "steps", "warm-up", "schedule", "clipping", "precision"]
    assert [name for name in names if name in expected] == expected
    assert out.splitlines()[-1] == "fit       would run; nothing was trained"
    assert len(out.splitlines()) < 30  # one screen


def test_a_refused_plan_writes_nothing_either(small, run_cli, tmp_path):
    before = _files(tmp_path)
    assert run_cli("plan", *small, "--trainer.accelerator", "gpu").status == 1
    assert _files(tmp_path) == before


# --- the settings of fit ----------------------------------------------------------------------


def test_a_config_of_fit_serves_with_the_keys_that_fit_alone_has(small, planned, tmp_path):
    config = tmp_path / "mine.yaml"
    config.write_text("test_after_fit: false\noutput: other.jsonl\ntrainer: {max_epochs: 1}\n")
    plan = planned("--config", config, *small, "--save_every_steps", "1000")
    assert plan["steps"] == 8
    assert plan["lines"]["keeps"].endswith("last also every 300 s and every 1,000 steps")
    assert "tests best" not in plan["lines"]["keeps"]
    assert not (tmp_path / "other.jsonl").exists()


def test_a_config_of_plan_serves_fit(run_cli, tmp_path):
    config = tmp_path / "mine.yaml"
    config.write_text("test_after_fit: false\n")
    status, out, _ = run_cli("plan", "--config", config, "--print_config")
    assert status == 0
    config.write_text(out, encoding="utf-8")
    assert "test_after_fit: false" in run_cli("fit", "--config", config, "--print_config").out


def test_plan_goes_on_from_a_checkpoint_with_its_settings(trained_folder, run_cli):
    before = _files(trained_folder)
    args = ("plan", "--ckpt_path", "last", "--trainer.max_epochs", "3")
    status, out, err = run_cli(*args, cwd=trained_folder)
    assert status == 0, err
    assert "8 rows × 1 device" in out
    assert "6 in all; 2 done, 4 left" in out
    assert _files(trained_folder) == before


def test_a_checkpoint_that_does_not_fit_is_refused_as_by_fit(trained_folder, run_cli):
    args = ("--ckpt_path", "last", "--model.layer_decay", "0.5")
    status, _, err = run_cli("plan", *args, cwd=trained_folder)
    assert status == 1
    assert err.startswith("error: model.layer_decay, model.frozen_layers: expected those")


# --- effective batch --------------------------------------------------------------------------


def test_a_larger_effective_batch_is_told_with_what_linear_scaling_would_be(small, planned):
    settings = ("--trainer.accumulate_grad_batches", "4", "--model.learning_rate", "1e-4")
    plan = planned(*small, *settings)
    assert plan["effective_batch"] == 32
    (line,) = [line for line in plan["warnings"] if line.startswith("batch:")]
    assert "32 rows a step, not data.batch_size 8; 6 steps instead of 24" in line
    assert "1 of warm-up instead of 2" in line
    assert "stays 0.0001" in line
    assert "--model.learning_rate 0.0004" in line


def test_one_device_without_accumulation_has_no_such_warning(small, planned):
    assert planned(*small)["warnings"] == []


def test_processes_count_in_batch_and_steps(small, planned):
    plan = planned(*small, "--config", "ddp.yaml", "--trainer.devices", "2")
    assert (plan["effective_batch"], plan["steps_an_epoch"]) == (16, 4)
    assert "DDPStrategy" in plan["lines"]["batch"]


# --- refusals ---------------------------------------------------------------------------------


def test_a_plan_for_gpus_is_shown_without_one_with_all_that_this_machine_refuses(small, run_cli):
    args = ("--config", "amp.yaml", "--config", "fsdp.yaml", "--trainer.devices", "64")
    status, out, err = run_cli("plan", *small, *args, "--amp.growth_factor", "0.5")
    assert status == 1
    assert "8 rows × 64 devices" in out
    assert "fit       would be refused, see below" in out
    assert "trainer.devices: expected a number of processes" in err
    assert "trainer.strategy: expected a strategy that runs on a CPU" in err
    assert "amp.growth_factor: expected a finite number above 1" in err
    assert "as many as val has rows" in err
    assert "Traceback" not in err


def test_a_gpu_that_is_not_there_still_has_its_device_path(small, run_cli):
    args = ("--config", "amp.yaml", "--trainer.accelerator", "gpu", "--trainer.devices", "4")
    status, out, err = run_cli("plan", *small, *args)
    assert status == 1
    assert "precision 16-mixed: AmpPrecision, fp16 autocast" in out
    assert "loss scale from 65536" in out
    assert "8 rows × 4 devices × 1 accumulated = 32 rows a step" in out
    assert err.startswith("error: trainer.accelerator: expected a GPU for 'gpu'")


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (("--trainer.accumulate_grad_batches", "0"), "trainer.accumulate_grad_batches: expected 1"),
        (("--trainer.gradient_clip_val", "-1"), "trainer.gradient_clip_val: expected 0 or more"),
        (("--data.max_length", "500"), "data.max_length: expected at most 128"),
        (("--trainer.limit_train_batches", "0"), "trainer.limit_train_batches: expected batches"),
        (("--trainer.limit_train_batches", "0.01"), "trainer.limit_train_batches: expected a"),
        (("--trainer.val_check_interval", "9"), "trainer.val_check_interval: expected at most 8"),
        (("--trainer.max_epochs", "-1"), "trainer.max_epochs: expected a number"),
        (("--trainer.fast_dev_run", "-1"), "fast_dev_run=-1 is not a valid"),
        (("--trainer.max_epoch", "1"), "max_epoch: expected a known key"),
        (("--model.warmup_ratio", "3"), "model.warmup_ratio: expected 0 to 1"),
        (("--data.path", "nowhere"), "data.path: expected a folder or a file"),
    ],
)
def test_what_fit_refuses_is_status_1_with_its_reason(small, run_cli, tmp_path, args, reason):
    before = _files(tmp_path)
    status, _, err = run_cli("plan", *small, *args)
    assert status == 1
    assert err.startswith("error: ")
    assert reason in err
    assert "Traceback" not in err
    assert _files(tmp_path) == before
    assert run_cli("fit", *small, *args).status == 1


def test_a_fault_of_the_model_comes_beside_those_of_the_machine(small, run_cli):
    args = ("--trainer.accelerator", "gpu", "--model.warmup_ratio", "3")
    err = run_cli("plan", *small, *args).err
    assert "trainer.accelerator" in err
    assert "model.warmup_ratio" in err


def test_a_key_that_is_refused_has_no_warning_as_well(small, run_cli):
    words = ("--amp.init_scale", "0", "--amp.growth_factor", "3", "--trainer.devices", "64")
    status, out, err = run_cli("plan", *small, *words)
    assert status == 1
    assert "amp.init_scale: expected" in err
    assert "trainer.devices: expected" in err
    warnings = [line for line in out.splitlines() if line.startswith("warning")]
    assert not [line for line in warnings if "amp.init_scale" in line or "trainer.devices" in line]
    assert [line for line in warnings if "amp.growth_factor 3: no effect" in line]


def test_reasons_stand_in_the_file_too(small, planned):
    plan = planned(*small, "--trainer.accelerator", "gpu", status=1)
    assert plan["refusals"][0].startswith("trainer.accelerator")


# --- device path ------------------------------------------------------------------------------


def test_a_cpu_says_what_it_takes_and_what_a_gpu_would(small, run_cli, monkeypatch):
    monkeypatch.setattr("bert_lightning.precision.cpu_computes_bf16", lambda: False)
    out = run_cli("plan", "--config", "amp.yaml", *small, "--amp.init_scale", "1024").out
    assert "note      16-mixed runs as 32 here: this CPU has no native bf16" in out
    assert "precision 32: float32 throughout" in out
    assert "on a GPU  16-mixed: AmpPrecision, fp16 autocast, float32 weights; loss scale" in out
    assert "warning   amp.init_scale 1024: no effect" in out
    assert "tf32      off: float32 products are strict" in out


@pytest.mark.parametrize(
    ("asked", "strategy", "name", "text"),
    [
        ("16-mixed", "ddp", "16-mixed", "16-mixed: AmpPrecision, fp16 autocast"),
        (16, "auto", "16-mixed", "stop at 1 or after 15 skips in a row"),
        ("16-mixed", "fsdp", "16-mixed", "FSDPAmpPrecision"),
        ("bf16", "auto", "bf16-mixed", "bf16-mixed: AmpPrecision, bf16 autocast"),
        ("bf16", "deepspeed_stage_2", "bf16-mixed", "bf16-mixed: Lightning's DeepSpeedPrecision"),
        ("16-mixed", "DeepSpeedStrategy", "16-mixed", "refused under DeepSpeed"),
        (32, "auto", "32-true", "32: float32 throughout"),
        (None, "auto", "32-true", "32: float32 throughout"),
        ("bf16-true", "auto", "bf16-true", "bf16-true: as Lightning runs it"),
    ],
)
def test_the_path_of_a_precision_on_a_gpu(asked, strategy, name, text):
    taken, line = device_path(asked, False, strategy, AmpSettings())
    assert taken == name
    assert text in line


def test_precision_without_an_estimate_says_so(small, planned):
    plan = planned(*small, "--trainer.precision", "64-true")
    assert plan["lines"]["memory"] == "no estimate for 64-true"
    assert "memory_gib" not in plan


def test_memory_is_that_of_the_configured_length_and_of_the_rows_here(small, planned):
    plan = planned(*small)
    memory = plan["memory_gib"]
    assert memory["longest"] < memory["total"]
    assert "an estimate" in plan["lines"]["memory"]
    assert ", the longest row of train" in plan["lines"]["memory"]


def test_clipping_is_after_unscaling_where_there_is_a_scale(small, planned):
    assert planned(*small)["lines"]["clipping"] == "gradient norm to 1"
    words = ("--config", "amp.yaml", "--trainer.accelerator", "gpu")
    assert planned(*small, *words, status=1)["lines"]["clipping"].endswith(", after unscaling")


def test_memory_follows_frozen_layers_and_gradient_checkpointing(news_folder, planned):
    mini = ("--data.path", news_folder, "--model.pretrained", "builtin")
    plain, frozen = (planned(*mini, "--model.frozen_layers", count) for count in (0, 1))
    lean = planned(*mini, "--config", "lowmem.yaml")
    assert frozen["memory_gib"]["adam"] < plain["memory_gib"]["adam"] / 2  # embeddings, too
    assert frozen["memory_gib"]["activations"] < plain["memory_gib"]["activations"] * 0.6
    assert lean["memory_gib"]["activations"] < plain["memory_gib"]["activations"]
    assert any(line.startswith("model.gradient_checkpointing") for line in lean["warnings"])


def test_nothing_of_a_plan_reaches_the_next_command(small, run_cli):
    assert run_cli("plan", *small, "--trainer.accelerator", "gpu").status == 1
    assert run_cli("plan", *small).status == 0
    assert not [name for name in os.environ if name.startswith("BERT_LIGHTNING_DECIDED")]
    assert planning.Plan().lines == {}
