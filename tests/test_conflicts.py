import pytest
from jsonargparse import Namespace

from bert_lightning.conflicts import Facts, find_conflicts

FACTS = {
    "on_cpu": False,
    "is_mini": False,
    "processes": 1,
    "strategy": "auto",
    "precision": "16-mixed",
    "batches": 100,
    "total_steps": 300,
    "epoch_steps": 300,
    "warmup_steps": 30,
    "has_test": True,
}
AMP = {
    "init_scale": 65536.0,
    "growth_factor": 2.0,
    "growth_interval": 2000,
    "backoff_factor": 0.5,
    "min_scale": 1.0,
    "max_consecutive_skips": 15,
}
SETTINGS = {
    "save_every_seconds": 300,
    "test_after_fit": True,
    "trainer": {
        "precision": "16-mixed",
        "max_epochs": 3,
        "max_steps": -1,
        "max_time": None,
        "gradient_clip_val": 1.0,
        "gradient_clip_algorithm": None,
        "accumulate_grad_batches": 1,
        "devices": 1,
        "log_every_n_steps": 10,
        "fast_dev_run": False,
        "detect_anomaly": False,
        "enable_checkpointing": None,
        "limit_val_batches": None,
    },
    "model": {"warmup_ratio": 0.1, "gradient_checkpointing": False},
    "data": {
        "batch_size": 32,
        "max_length": 128,
        "tokens_per_batch": None,
        "pad_to_multiple_of": 1,
        "predict_path": None,
        "class_weights": None,
    },
    "amp": AMP,
    "matmul": {"tf32": False},
    "find_batch": {"enabled": False, "memory_gib": None},
}


def _found(settings=None, facts=None, typed=None):
    config = Namespace(
        {
            key: Namespace(value) if isinstance(value, dict) else value
            for key, value in SETTINGS.items()
        }
    )
    for key, value in (settings or {}).items():
        config[key] = value
    return find_conflicts(config, typed or {}, Facts(**{**FACTS, **(facts or {})}))


def test_the_usual_settings_have_none():
    assert _found() == []


@pytest.mark.parametrize(
    ("settings", "facts", "line"),
    [
        (
            {"find_batch.memory_gib": 24.0},
            {},
            "find_batch.memory_gib 24: no effect without find_batch.enabled true",
        ),
        (
            {"amp.init_scale": 1024.0, "trainer.precision": 32},
            {"precision": "32-true"},
            "amp.init_scale 1024: no effect without a loss scale, as trainer.precision is 32",
        ),
        (
            {"amp.growth_interval": 5},
            {"precision": "bf16-mixed", "on_cpu": True},
            "amp.growth_interval 5: no effect without a loss scale, as 16-mixed runs as bf16-mixed",
        ),
        (
            {"amp.growth_interval": 5, "trainer.precision": None},
            {"precision": "bf16-mixed"},
            "amp.growth_interval 5: no effect without a loss scale, as the run is in bf16-mixed",
        ),
        (
            {"trainer.precision": "16-true"},
            {"precision": "16-true"},
            "trainer.precision 16-true: no loss scale, and weights",
        ),
        (
            {"trainer.detect_anomaly": True},
            {},
            "trainer.detect_anomaly true: may end the run at an overflow",
        ),
        ({"matmul.tf32": True}, {"on_cpu": True}, "matmul.tf32 true: no effect on a CPU"),
        ({"matmul.tf32": True}, {}, "matmul.tf32 true: hardly any effect"),
        (
            {"model.gradient_checkpointing": True},
            {"is_mini": True},
            "model.gradient_checkpointing true: takes time and saves next to nothing",
        ),
        (
            {},
            {"total_steps": 4, "warmup_steps": 0},
            "model.warmup_ratio 0.1: no warm-up, as 4 steps are too few",
        ),
        (
            {"model.warmup_ratio": 1.0},
            {"warmup_steps": 300},
            "model.warmup_ratio 1: the rate rises to the last step",
        ),
        (
            {"trainer.max_steps": 1000},
            {},
            "trainer.max_steps 1,000: never reached, trainer.max_epochs 3 ends the run after 300",
        ),
        (
            {"trainer.max_steps": 100},
            {"total_steps": 100},
            "trainer.max_epochs 3: trainer.max_steps 100 ends the run, of 300 steps",
        ),
        ({"trainer.max_time": "00:01:00:00"}, {}, "trainer.max_time 00:01:00:00: may end the run"),
        (
            {"trainer.gradient_clip_val": None, "trainer.gradient_clip_algorithm": "norm"},
            {},
            "trainer.gradient_clip_algorithm norm: no effect without trainer.gradient_clip_val",
        ),
        (
            {"data.tokens_per_batch": 64},
            {},
            "data.tokens_per_batch 64: less than data.max_length 128",
        ),
        (
            {"data.pad_to_multiple_of": 256},
            {},
            "data.pad_to_multiple_of 256: more than data.max_length 128",
        ),
        (
            {"trainer.accumulate_grad_batches": 200},
            {},
            "trainer.accumulate_grad_batches 200: an epoch has 100 batches",
        ),
        (
            {"data.predict_path": "a.txt", "data.class_weights": "balanced"},
            {},
            "data.predict_path a.txt: fit does not read it and data.class_weights is left out",
        ),
        ({}, {"strategy": "DDPStrategy"}, "trainer.strategy DDPStrategy: nothing to share out"),
        (
            {"trainer.devices": 2},
            {"on_cpu": True, "processes": 2, "strategy": "ddp"},
            "trainer.devices 2: 2 processes share the cores of one CPU",
        ),
        ({"save_every_seconds": 0}, {}, "save_every_seconds 0: a checkpoint at every 10 batches"),
        ({"save_every_seconds": -1.0}, {}, "save_every_seconds -1: a checkpoint at every 10"),
        ({"trainer.fast_dev_run": True}, {}, "trainer.fast_dev_run True: nothing is kept"),
        (
            {"trainer.enable_checkpointing": False},
            {},
            "trainer.enable_checkpointing false: nothing is kept",
        ),
        ({"trainer.limit_val_batches": 0}, {}, "trainer.limit_val_batches 0: no best checkpoint"),
        ({}, {"has_test": False}, "test_after_fit true: the data has no test file"),
    ],
)
def test_each_conflict_is_one_line_that_begins_with_its_key(settings, facts, line):
    (found,) = _found(settings, facts)
    assert found.startswith(line)


def test_a_strategy_that_needs_gpus_is_not_said_to_share_the_cpu():
    assert not _found({"trainer.devices": 2}, {"on_cpu": True, "processes": 2, "strategy": "fsdp"})


def test_a_batch_size_beside_a_token_budget_is_told_where_it_was_typed():
    budget = {"data.tokens_per_batch": 4096}
    assert _found(budget) == []
    (found,) = _found(budget, typed={"data.batch_size": 32})
    assert found.startswith("data.batch_size 32: no effect on training batches")
