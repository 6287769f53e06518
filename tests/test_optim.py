import pytest
import torch
from torch import nn

from bert_lightning.demo.mini_bert import mini_config
from bert_lightning.errors import ConfigError
from bert_lightning.optim import (
    SCHEDULES,
    GatedAdamW,
    build_optimizer,
    freeze_layers,
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
    """Rate of each of the next optimizer steps; the schedule moves by itself."""
    rates = []
    for _ in range(steps):
        rates.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
    return rates


# --- groups -----------------------------------------------------------------------------------


def test_layer_norm_and_biases_are_not_decayed_and_all_else_is(bert):
    decayed, plain = parameter_groups(bert, 0.01, 1.0)
    assert (decayed["weight_decay"], plain["weight_decay"]) == (0.01, 0.0)
    names = {id(parameter): name for name, parameter in bert.named_parameters()}
    expected = {name for name in names.values() if "LayerNorm" in name or name.endswith("bias")}
    assert {names[id(parameter)] for parameter in plain["params"]} == expected
    assert {names[id(p)] for p in decayed["params"]} == set(names.values()) - expected
    assert "bert.embeddings.word_embeddings.weight" not in expected


def test_each_parameter_is_in_one_group(bert):
    grouped = [p for group in parameter_groups(bert, 0.01, 1.0) for p in group["params"]]
    assert len(grouped) == len({id(p) for p in grouped}) == len(list(bert.parameters()))


def test_frozen_parameters_are_left_out():
    network = _small()
    for parameter in network[0].parameters():
        parameter.requires_grad_(False)
    grouped = {id(p) for group in parameter_groups(network, 0.01, 1.0) for p in group["params"]}
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
    assert {float(group["lr"]) for group in optimizer.param_groups} == {0.0}
    assert int(schedule.optimizer_steps) == 11


@pytest.mark.parametrize("ratio", [0.0, 0.01, 1.0])
def test_any_share_of_warm_up_is_a_schedule(ratio):
    optimizer, schedule = build_optimizer(_small(), 0.1, 0.01, ratio, 10)
    assert max(_rates(optimizer, schedule, 10)) == pytest.approx(0.1)


def test_the_optimizer_is_adamw_with_the_given_rate_and_decay():
    optimizer, _ = build_optimizer(_small(), 0.1, 0.02, 0.0, 10)
    assert type(optimizer) is torch.optim.AdamW
    assert [float(group["lr"]) for group in optimizer.param_groups] == [0.1, 0.1]
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.02, 0.0]


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_warms_up_alike_and_goes_its_own_way(name):
    rates = _rates(*build_optimizer(_small(), 0.1, 0.01, 0.2, 10, schedule=name), 11)
    assert rates[:3] == pytest.approx([0.05, 0.1, 0.1])
    assert rates[6] == pytest.approx(0.1 if name == "constant" else 0.05)
    assert rates[10] == pytest.approx(0.1 if name == "constant" else 0.0)


# --- layers -----------------------------------------------------------------------------------


def test_a_lower_layer_has_the_rate_of_the_layer_above_it_times_the_decay(bert):
    names = {id(parameter): name for name, parameter in bert.named_parameters()}
    rates = {
        names[id(p)]: (group["lr"], group["weight_decay"])
        for group in parameter_groups(bert, 0.01, 0.1, layer_decay=0.5)
        for p in group["params"]
    }
    assert rates.keys() == set(names.values())
    assert rates["classifier.weight"] == (0.1, 0.01)
    assert rates["bert.pooler.dense.bias"] == (0.1, 0.0)
    assert rates["bert.encoder.layer.0.output.dense.weight"] == (0.05, 0.01)
    assert rates["bert.embeddings.LayerNorm.weight"] == (0.025, 0.0)


def test_the_rates_of_all_layers_follow_one_schedule(bert):
    optimizer, _ = build_optimizer(bert, 0.1, 0.01, 0.0, 4, layer_decay=0.5)
    optimizer.step()
    assert [round(float(group["lr"]), 6) for group in optimizer.param_groups] == [
        *[0.075, 0.075],
        *[0.0375, 0.0375],
        *[0.01875, 0.01875],
    ]


@pytest.mark.parametrize("layers", [0, 1])
def test_frozen_layers_take_the_embeddings_with_them(layers):
    from transformers import BertForSequenceClassification

    config = mini_config()
    config.hidden_size = config.intermediate_size = 16
    config.num_hidden_layers, config.num_attention_heads = 2, 2
    network = BertForSequenceClassification(config)
    freeze_layers(network, layers)
    frozen = {name for name, p in network.named_parameters() if not p.requires_grad}
    expected = {
        name
        for name, _ in network.named_parameters()
        if layers and ("embeddings." in name or "layer.0." in name)
    }
    assert frozen == expected


@pytest.mark.parametrize("layers", [-1, 2])
def test_more_frozen_layers_than_there_are_are_refused(bert, layers):
    with pytest.raises(ConfigError, match=f"model.frozen_layers: expected 0 to 1 – found {layers}"):
        freeze_layers(bert, layers)


# --- skipped on the device --------------------------------------------------------------------


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_the_gated_step_equals_the_plain_one_and_is_left_out_where_overflow_was_found(decay):
    networks = [_small(), _small()]
    networks[1].load_state_dict(networks[0].state_dict())
    kinds = (GatedAdamW, torch.optim.AdamW)
    gated, plain = (
        kind(network.parameters(), lr=0.01, weight_decay=decay)
        for kind, network in zip(kinds, networks, strict=True)
    )
    for attempt in range(8):
        is_skipped = attempt in (0, 3)
        grads = [torch.randn_like(p) for p in networks[0].parameters()]
        for network, factor in zip(
            networks, (float("nan") if is_skipped else 1.0, 1.0), strict=True
        ):
            for parameter, grad in zip(network.parameters(), grads, strict=True):
                parameter.grad = grad * factor
        gated.found_inf = torch.tensor(float(is_skipped))
        gated.step()
        if not is_skipped:
            plain.step()
        for ours, theirs in zip(*(n.parameters() for n in networks), strict=True):
            torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0)
    assert {float(state["step"]) for state in gated.state.values()} == {6.0}


@pytest.mark.parametrize(("fused", "kind"), [(False, GatedAdamW), (None, torch.optim.AdamW)])
def test_a_step_that_was_skipped_does_not_move_the_rate(fused, kind):
    optimizer, schedule = build_optimizer(_small(), 0.1, 0.01, 0.0, 4, scaled=True, fused=fused)
    assert type(optimizer) is kind
    rates = []
    for found in (0.0, 1.0, 1.0, 0.0):
        optimizer.found_inf = torch.tensor(found)
        rates.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
    assert rates == pytest.approx([0.1, 0.075, 0.075, 0.075])
    assert int(schedule.optimizer_steps) == 2


# --- resume -----------------------------------------------------------------------------------


def _resumed(learning_rate=0.1, weight_decay=0.01, steps=4, given=(0.1, 0.01), **settings):
    """Return an optimizer and a schedule that were put back as after some steps."""
    is_plain = settings.get("fused", True)  # the other form
    first, first_schedule = build_optimizer(
        _small(), learning_rate, weight_decay, 0.2, 10, fused=not is_plain
    )
    for parameter in first.param_groups[0]["params"]:
        parameter.grad = torch.ones_like(parameter)
    _rates(first, first_schedule, steps)
    optimizer, schedule = build_optimizer(_small(), *given, 0.2, 10, **settings)
    optimizer.load_state_dict(first.state_dict())
    schedule.load_state_dict(first_schedule.state_dict())
    schedule.take_over()
    return optimizer, schedule


def test_the_given_rate_counts_after_a_resume_and_the_position_stays():
    optimizer, schedule = _resumed(given=(0.3, 0.01))
    expected = [0.3 * _slow_factor(step, 2, 10) for step in range(4, 11)]
    assert _rates(optimizer, schedule, 7) == pytest.approx(expected)


@pytest.mark.parametrize(("stored", "given"), [(0.01, 0.2), (0.01, 0.0), (0.0, 0.01)])
def test_the_given_decay_counts_after_a_resume(stored, given):
    optimizer, _ = _resumed(weight_decay=stored, given=(0.1, given))
    assert [group["weight_decay"] for group in optimizer.param_groups] == [given, 0.0]


@pytest.mark.parametrize(
    "settings", [{}, {"fused": True}, {"fused": False}, {"fused": False, "scaled": True}], ids=str
)
def test_a_run_goes_on_with_another_form_of_the_optimizer(settings):
    optimizer, schedule = _resumed(**settings)
    for parameter in optimizer.param_groups[0]["params"]:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    assert bool(optimizer.param_groups[0]["fused"]) is settings.get("fused", True)
    assert {float(state["step"]) for state in optimizer.state.values()} == {5.0}
    assert int(schedule.optimizer_steps) == 5


def test_the_position_of_an_older_checkpoint_is_taken():
    optimizer, schedule = build_optimizer(_small(), 0.1, 0.01, 0.0, 10)
    schedule.load_state_dict({"last_epoch": 5, "base_lrs": [0.1]})
    assert float(optimizer.param_groups[0]["lr"]) == pytest.approx(0.05)
