import json
from pathlib import Path

import pytest
import yaml

from bert_lightning.arguments import configs_folder
from bert_lightning.benchmark.cases import (
    BenchmarkSettings,
    Case,
    Subject,
    absence,
    all_cases,
    check_cases,
    fit_command,
    own_options,
)
from bert_lightning.benchmark.stopwatch import Extent

SUBJECT = Subject(
    options=("--model.pretrained", "m"),
    batch_size=32,
    max_length=128,
    extent=Extent(warmup=5, steps=20),
    memory_gib=24.0,
)
SETTINGS = BenchmarkSettings(
    cases={
        "equal_batch": {"bucketed": ["fp32", "16-mixed"]},
        "article": {"bucketed": ["fp32", "16-mixed"]},
        "equal_memory": {"padded": ["16-mixed lowmem"]},
    },
    cpu_cases={"equal_batch": {"random": ["fp32", "bf16-mixed"]}},
    accuracy=["fp32"],
)


def test_parts_share_their_cases():
    keys = [case.key for case in all_cases(SETTINGS, 32, on_cpu=False, has_bf16=True)]
    assert keys == [
        "fp32, bucketed, batch 32",
        "16-mixed, bucketed, batch 32",
        "fp32, bucketed, batch 16",
        "16-mixed lowmem, padded, largest batch",
    ]


@pytest.mark.parametrize(("has_bf16", "count"), [(True, 2), (False, 1)])
def test_a_cpu_runs_mixed_precision_only_where_it_is_native(has_bf16, count):
    cases = all_cases(SETTINGS, 32, on_cpu=True, has_bf16=has_bf16)
    assert [case.lengths for case in cases] == ["random"] * count


def test_what_no_cpu_measures_is_left_out_there():
    settings = BenchmarkSettings(
        cpu_cases={"equal_batch": {"random": ["fp32", "tf32", "16-mixed"]}},
        accuracy=["16-mixed", "bf16-mixed"],
        accuracy_seeds=[1],
    )
    cases = all_cases(settings, 32, on_cpu=True, has_bf16=True)
    assert [case.variant for case in cases] == ["fp32", "bf16-mixed"]


@pytest.mark.parametrize(
    ("case", "on_cpu", "reason"),
    [
        (Case("fp32", batch=16), True, "not among cpu_cases"),
        (Case("fp32", batch=16), False, "not among the cases"),
        (Case("fp32", batch=32), True, "not measured yet"),
        (Case("fp32"), True, "a largest batch needs a CUDA device"),
        (Case("tf32", batch=32), True, "tf32 needs a CUDA device"),
        (Case("16-mixed lowmem", batch=32), True, "16-mixed needs a CUDA device"),
        (Case("bf16-mixed eager", batch=32), True, "this CPU does not compute bf16"),
    ],
)
def test_a_case_without_a_result_has_its_own_reason(case, on_cpu, reason):
    assert absence(case, [Case("fp32", batch=32)], on_cpu, has_bf16=False) == reason


def test_every_accuracy_seed_is_a_case():
    settings = BenchmarkSettings(accuracy=["fp32", "tf32"], accuracy_seeds=[1, 2])
    cases = all_cases(settings, 32, on_cpu=False, has_bf16=True)
    assert [(case.variant, case.seed) for case in cases] == [
        ("fp32", 1),
        ("tf32", 1),
        ("fp32", 2),
        ("tf32", 2),
    ]


def _value(words, option):
    return words[len(words) - 1 - words[::-1].index(option) + 1]


def test_the_largest_batch_is_left_to_the_timer_and_memory_is_held():
    case = Case("16-mixed lowmem", "padded")
    words = fit_command(case, SUBJECT, Path("out"), 5.0)
    assert "--data.batch_size" not in words
    assert _value(words, "--data.pad_to_multiple_of") == "128"
    assert _value(words, "--config") == "lowmem.yaml"
    timer = json.loads(_value(words, "--trainer.callbacks"))[0]["init_args"]
    assert timer["largest"] is True
    assert timer["memory_gib"] == 24.0
    assert timer["random_order"] is False
    assert (timer["warmup"], timer["steps"], timer["full"]) == (5, 20, False)


def test_a_run_to_the_end_is_plain_fit_with_its_seed():
    words = fit_command(Case("tf32", batch=32, seed=3), SUBJECT, Path("o"), 0.0)
    assert "--trainer.callbacks" not in words
    assert "--trainer.max_epochs" not in words
    assert _value(words, "--seed_everything") == "3"


def test_the_command_to_repeat_a_case_by_hand_names_the_batch_that_was_found():
    words = own_options(Case("16-mixed eager"), SUBJECT, 96)
    assert words[:2] == ["--model.pretrained", "m"]
    assert _value(words, "--data.batch_size") == "96"
    assert _value(words, "--model.execution") == "eager"


def test_all_faults_of_the_cases_are_found():
    settings = BenchmarkSettings(
        cases={"same_batch": {"long": ["fp64"]}}, accuracy=["fp32 fast"], steps=0, memory_gib=-1.0
    )
    text = "\n".join(check_cases(settings))
    for found in ("'same_batch'", "'long'", "'fp64'", "'fp32 fast'", "steps:", "memory_gib:"):
        assert found in text


def test_the_shipped_file_has_no_faults_and_fills_only_keys_that_exist():
    content = yaml.safe_load((configs_folder() / "benchmark.yaml").read_text(encoding="utf-8"))
    assert check_cases(BenchmarkSettings(**content)) == []
