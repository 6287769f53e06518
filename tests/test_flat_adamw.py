import copy

import pytest
import torch
from torch import nn
from torch.optim import AdamW

from bert_lightning.errors import TrainingError
from bert_lightning.flat_adamw import FlatAdamW


def made_network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.LayerNorm(7), nn.Linear(7, 3))


def groups(network):
    plain = [p for p in network.parameters() if p.ndim == 1]
    matrices = [p for p in network.parameters() if p.ndim > 1]
    return [
        {"params": matrices, "weight_decay": 0.1, "lr": torch.tensor(0.02)},
        {"params": plain, "weight_decay": 0.0, "lr": torch.tensor(0.01)},
    ]


def products(network):
    return {p for m in network if isinstance(m, nn.Linear) for p in m.parameters()}


def made_optimizer(network, dtype=torch.float32, **options):
    return FlatAdamW(groups(network), products(network), dtype, **options)


def gradients(network, seed):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(p.shape, generator=generator) for p in network.parameters()]


def give(optimizer, network, given):
    for parameter, gradient in zip(network.parameters(), given, strict=True):
        optimizer.gradients_of([parameter]).copy_(gradient)


def stepped_by_torch(network, *steps, max_norm=None):
    optimizer = AdamW(groups(network))
    for given in steps:
        for parameter, gradient in zip(network.parameters(), given, strict=True):
            parameter.grad = gradient.clone()
        if max_norm:
            nn.utils.clip_grad_norm_(network.parameters(), max_norm)
        optimizer.step()
    return optimizer


def assert_same(network, other):
    for ours, theirs in zip(network.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)


def test_steps_equal_those_of_torch():
    network, other = made_network(), made_network()
    optimizer = made_optimizer(network)
    steps = [gradients(network, seed) for seed in range(4)]
    for given in steps:
        give(optimizer, network, given)
        optimizer.step()
    theirs = stepped_by_torch(other, *steps)
    assert_same(network, other)
    for ours, parameter in zip(network.parameters(), other.parameters(), strict=True):
        for name, value in theirs.state[parameter].items():
            torch.testing.assert_close(optimizer.state[ours][name], value, msg=name)


def test_the_factor_takes_the_loss_scale_out_and_clips():
    network, other = made_network(), made_network()
    optimizer = made_optimizer(network)
    given = gradients(network, 1)
    give(optimizer, network, [gradient * 1024 for gradient in given])
    norm = optimizer.gradient_norm() / 1024
    torch.testing.assert_close(norm, nn.utils.get_total_norm(given))
    optimizer.gradient_factor = 0.5 / norm / 1024
    optimizer.step()
    stepped_by_torch(other, given, max_norm=0.5)
    assert_same(network, other)


def test_gradients_are_clipped_by_value_after_the_factor():
    network, other = made_network(), made_network()
    optimizer = made_optimizer(network)
    optimizer.clip_value, optimizer.gradient_factor = 0.3, torch.tensor(0.5)
    give(optimizer, network, gradients(network, 1))
    optimizer.step()
    stepped_by_torch(other, [(g * 0.5).clamp(-0.3, 0.3) for g in gradients(network, 1)])
    assert_same(network, other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_skipped_step_leaves_everything_as_it_was(dtype):
    network = made_network()
    optimizer = made_optimizer(network, dtype)
    give(optimizer, network, gradients(network, 1))
    optimizer.step()
    before = copy.deepcopy((network.state_dict(), optimizer.state_dict()["state"]))
    give(optimizer, network, [torch.full_like(p, torch.inf) for p in network.parameters()])
    optimizer.found_inf = torch.ones(1)
    optimizer.step()
    after = (network.state_dict(), optimizer.state_dict()["state"])
    torch.testing.assert_close(after, before, atol=0, rtol=0)
    optimizer.found_inf = torch.zeros(1)
    give(optimizer, network, gradients(network, 2))
    optimizer.step()
    assert optimizer.state[next(network.parameters())]["step"] == 2


def test_products_use_a_copy_that_the_step_writes():
    network = made_network()
    optimizer = made_optimizer(network, torch.float16)
    weight, norm = network[0].weight, network[1].weight
    give(optimizer, network, gradients(network, 1))
    optimizer.step()
    assert torch.equal(optimizer.used([weight]), weight.detach().half())
    assert optimizer.used([norm]).data_ptr() == norm.data_ptr()
    assert optimizer.gradients_of([weight]).dtype == torch.float16
    with torch.no_grad():
        weight.add_(1.0)
    optimizer.refresh()
    assert torch.equal(optimizer.used([weight]), weight.detach().half())


def test_gradients_of_several_batches_are_added_in_float32():
    network = made_network()
    optimizer = made_optimizer(network, torch.float16, accumulates=True)
    assert optimizer.gradients_of([network[0].weight]).dtype == torch.float32


def test_parameters_behind_each_other_are_used_as_one():
    torch.manual_seed(0)
    parts = [nn.Parameter(torch.randn(64, 4)) for _ in range(3)]
    optimizer = FlatAdamW([{"params": parts, "lr": torch.tensor(0.1)}], set(), torch.float32)
    assert torch.equal(optimizer.used(parts), torch.cat([p.detach() for p in parts]))
    with pytest.raises(AssertionError, match="behind each other"):
        optimizer.used(parts[::2])


@pytest.mark.parametrize("ours_first", [True, False])
def test_either_optimizer_goes_on_with_the_state_of_the_other(ours_first, tmp_path):
    steps = [gradients(made_network(), seed) for seed in range(4)]
    whole = made_network()
    stepped_by_torch(whole, *steps)
    network = made_network()
    if ours_first:
        first = made_optimizer(network)
        for given in steps[:2]:
            give(first, network, given)
            first.step()
    else:
        first = stepped_by_torch(network, *steps[:2])
    torch.save([network.state_dict(), first.state_dict()], tmp_path / "both")
    weights, state = torch.load(tmp_path / "both", weights_only=True)
    other = made_network()
    second = AdamW(groups(other)) if ours_first else made_optimizer(other)
    other.load_state_dict(weights)
    second.load_state_dict(state)
    for given in steps[2:]:
        if ours_first:
            for parameter, gradient in zip(other.parameters(), given, strict=True):
                parameter.grad = gradient
        else:
            give(second, other, given)
        second.step()
    assert_same(other, whole)


def test_weights_that_are_loaded_stay_views():
    network = made_network()
    optimizer = made_optimizer(network, torch.float16)
    network.load_state_dict({name: value + 1 for name, value in network.state_dict().items()})
    optimizer.refresh()
    assert torch.equal(optimizer.used([network[0].weight]), network[0].weight.detach().half())


def test_no_two_parameters_overlap():
    network = made_network()
    made_optimizer(network)
    for number, parameter in enumerate(network.parameters()):
        parameter.data.fill_(number)
    for number, parameter in enumerate(network.parameters()):
        assert (parameter == number).all()
    pointers = [p.data_ptr() for p in network.parameters()]
    assert len(set(pointers)) == len(pointers)
    assert [pointer % 16 for pointer in pointers] == [0] * len(pointers)


def test_weights_that_are_added_later_are_refused():
    optimizer = made_optimizer(made_network())
    with pytest.raises(TrainingError, match="a group that is added later"):
        optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(3))]})


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_tensors_put_in_place_of_weights_are_taken_in(dtype):
    network = made_network()
    optimizer = made_optimizer(network, dtype)
    weight = network[0].weight
    weight.data = torch.full_like(weight, 0.5)
    optimizer.refresh_if_changed()
    assert torch.equal(optimizer.used([weight]), torch.full_like(weight, 0.5, dtype=dtype))
    give(optimizer, network, gradients(network, 1))
    optimizer.step()
    assert not (weight == 0.5).any()


def test_weights_frozen_in_the_midst_of_a_run_are_refused():
    network = made_network()
    optimizer = made_optimizer(network)
    network[0].requires_grad_(False)
    with pytest.raises(TrainingError, match="frozen in the midst"):
        optimizer.refresh_if_changed()


def test_a_state_from_before_the_first_step_is_empty():
    network = made_network()
    optimizer = made_optimizer(network)
    give(optimizer, network, gradients(network, 1))
    optimizer.step()
    optimizer.load_state_dict(AdamW(groups(made_network())).state_dict())
    for state in optimizer.state.values():
        assert not any(value.any() for value in state.values())
