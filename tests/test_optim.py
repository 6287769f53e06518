import pytest
import torch
from torch import nn

from bert_lightning.demo.mini_bert import mini_config
from bert_lightning.optim import (
    build_optimizer,
    override_restored,
    parameter_groups,
    warmup_linear,
)


@pytest.fixture(scope="module")
def bert():
    from transformers import BertForSequenceClassification

    config = mini_config()
    config.hidden_size = config.intermediate_size = 16
    config.num_hidden_layers, config.num_attention_heads = 1, 2
    return BertForSequenceClassification(config)


def _small():
    return nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3), nn.Linear(3, 2))


def _rates(optimizer, schedule, steps):
    """Rate of each of the next optimizer steps."""
    rates = []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return rates


# --- groups -----------------------------------------------------------------------------------


def test_layer_norm_and_biases_are_not_decayed_and_all_else_is(bert):
    decayed, plain = parameter_groups(bert, 0.01)
    assert (decayed["weight_decay"], plain["weight_decay"]) == (0.01, 0.0)
    names = {id(parameter): name for name, parameter in bert.named_parameters()}
    expected = {name for name in names.values() if "LayerNorm" in name or name.endswith("bias")}
    assert {names[id(parameter)] for parameter in plain["params"]} == expected
    assert {names[id(p)] for p in decayed["params"]} == set(names.values()) - expected
    assert "bert.embeddings.word_embeddings.weight" not in expected


def test_each_parameter_is_in_one_group(bert):
    grouped = [p for group in parameter_groups(bert, 0.01) for p in group["params"]]
    assert len(grouped) == len({id(p) for p in grouped}) == len(list(bert.parameters()))


def test_frozen_parameters_are_left_out():
    network = _small()
    for parameter in network[0].parameters():
        parameter.requires_grad_(False)
    grouped = {id(p) for group in parameter_groups(network, 0.01) for p in group["params"]}
    assert not grouped & {id(p) for p in network[0].parameters()}
    assert len(grouped) == 4


# --- schedule ---------------------------------------------------------------------------------


def _slow_factor(step, warmup_steps, total_steps):
    """Say the rule step by step."""
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    if step >= total_steps:
        return 0.0
    return 1.0 - (step - warmup_steps) / (total_steps - warmup_steps)


@pytest.mark.parametrize(("warmup", "total"), [(0, 6), (1, 6), (2, 6), (6, 6), (10, 100), (0, 1)])
def test_the_factor_equals_a_slow_reference(warmup, total):
    for step in range(total + 3):
        expected = _slow_factor(step, warmup, total)
        assert warmup_linear(step, warmup, total) == pytest.approx(expected), step


def test_without_warm_up_the_first_step_has_the_full_rate():
    assert [warmup_linear(step, 0, 4) for step in range(6)] == [1.0, 0.75, 0.5, 0.25, 0.0, 0.0]


def test_the_rate_is_never_zero_before_the_end_and_never_above_the_peak():
    for warmup in (0, 1, 5, 50):
        factors = [warmup_linear(step, warmup, 50) for step in range(50)]
        assert all(0 < factor <= 1 for factor in factors)


def test_a_run_of_no_steps_has_a_schedule():
    assert warmup_linear(0, 0, 0) == 0.0


# --- optimizer --------------------------------------------------------------------------------


def test_the_schedule_moves_all_groups_once_a_step():
    optimizer, schedule = build_optimizer(_small(), 0.1, 0.01, 0.2, 10)
    rates = _rates(optimizer, schedule, 11)
    assert rates == pytest.approx([0.1 * _slow_factor(step, 2, 10) for step in range(11)])
    assert {group["lr"] for group in optimizer.param_groups} == {0.0}


@pytest.mark.parametrize("ratio", [0.0, 0.01, 1.0])
def test_any_share_of_warm_up_is_a_schedule(ratio):
    optimizer, schedule = build_optimizer(_small(), 0.1, 0.01, ratio, 10)
    assert max(_rates(optimizer, schedule, 10)) == pytest.approx(0.1)


def test_the_optimizer_is_adamw_with_the_given_rate_and_decay():
    optimizer, _ = build_optimizer(_small(), 0.1, 0.02, 0.0, 10)
    assert type(optimizer) is torch.optim.AdamW
    assert [group["initial_lr"] for group in optimizer.param_groups] == [0.1, 0.1]
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.02, 0.0]


# --- resume -----------------------------------------------------------------------------------


def _resumed(learning_rate=0.1, weight_decay=0.01, steps=4):
    """Return an optimizer and a schedule that were put back as after some steps."""
    first, first_schedule = build_optimizer(_small(), learning_rate, weight_decay, 0.2, 10)
    _rates(first, first_schedule, steps)
    optimizer, schedule = build_optimizer(_small(), 0.5, 0.5, 0.2, 10)
    optimizer.load_state_dict(first.state_dict())
    schedule.load_state_dict(first_schedule.state_dict())
    return optimizer, schedule


def test_the_given_rate_counts_after_a_resume_and_the_position_stays():
    optimizer, schedule = _resumed()
    override_restored(optimizer, schedule, 0.3, 0.01)
    expected = [0.3 * _slow_factor(step, 2, 10) for step in range(4, 11)]
    assert _rates(optimizer, schedule, 7) == pytest.approx(expected)


def test_the_same_rate_and_decay_change_nothing():
    optimizer, schedule = _resumed()
    before = [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups]
    override_restored(optimizer, schedule, 0.1, 0.01)
    after = [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups]
    assert after == before


@pytest.mark.parametrize(("stored", "given"), [(0.01, 0.2), (0.01, 0.0), (0.0, 0.01)])
def test_the_given_decay_counts_after_a_resume(stored, given):
    optimizer, schedule = _resumed(weight_decay=stored)
    override_restored(optimizer, schedule, 0.1, given)
    assert [group["weight_decay"] for group in optimizer.param_groups] == [given, 0.0]
