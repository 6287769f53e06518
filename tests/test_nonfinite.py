import math

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from bert_lightning.demo.mini_bert import mini_config
from bert_lightning.nonfinite import Finding, find_nonfinite

LABELS = torch.tensor([0, 1, 0, 1])


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(3, 5), nn.Linear(5, 2)

    def forward(self, x):
        return self.second(self.first(x).tanh())


def look(network, x, scale=1.0):
    def row_losses():
        return cross_entropy(network(x), LABELS, reduction="none")

    return find_nonfinite(network, row_losses, scale)


def test_nothing_is_found_where_all_is_finite_and_nothing_is_changed():
    network, x = Network(), torch.randn(4, 3)
    state = torch.get_rng_state()
    assert look(network, x) is None
    assert torch.equal(torch.get_rng_state(), state)
    assert all(parameter.grad is None for parameter in network.parameters())
    assert not any(module._forward_hooks for module in network.modules())


def test_an_output_is_named_by_the_innermost_module_and_its_rows():
    x = torch.randn(4, 3)
    x[1, 0], x[3, 2] = math.nan, math.inf
    found = look(Network(), x)
    assert found == Finding("output", "first", [1, 3])
    assert found.place == "output of first"


def test_a_weight_is_named():
    network = Network()
    with torch.no_grad():
        network.second.weight[0, 0] = math.nan
    assert look(network, torch.randn(4, 3)) == Finding("weight", "second.weight", [])


def test_a_gradient_that_overflows_by_its_scale_is_named_with_its_rows():
    network, x = Network(), torch.randn(4, 3)
    x[2] = 1e30  # the gradient of the first weight is the gradient behind it times this
    network.first.weight.data.mul_(1e-30)
    assert look(network, x, 1.0) is None
    assert look(network, x, 1e20) == Finding("gradient", "first", [2])


@pytest.fixture(scope="module")
def bert():
    from transformers import BertForSequenceClassification

    config = mini_config(4)
    config.hidden_size, config.intermediate_size = 32, 64
    config.num_hidden_layers, config.num_attention_heads = 2, 2
    torch.manual_seed(0)
    return BertForSequenceClassification(config)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_a_text_of_only_padding_has_finite_logits_and_gradients(bert, dtype):
    ids = torch.randint(5, 500, (3, 12))
    mask = torch.ones_like(ids)
    mask[0] = 0
    mask[1, 2:] = 0
    ids[0] = 0

    def row_losses():
        with torch.autocast("cpu", dtype=dtype):
            logits = bert(input_ids=ids, attention_mask=mask).logits
        return cross_entropy(logits.float(), LABELS[:3], reduction="none")

    assert find_nonfinite(bert.train(), row_losses, 1024.0) is None


def test_padding_does_not_change_the_logits_of_a_short_text_in_fp16(bert):
    ids = torch.randint(5, 500, (2, 40))
    mask = torch.ones_like(ids)
    mask[1, 3:] = 0
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.float16):
        bert.eval()
        together = bert(input_ids=ids, attention_mask=mask).logits
        alone = bert(input_ids=ids[1:, :3], attention_mask=mask[1:, :3]).logits
    torch.testing.assert_close(together[1:], alone, atol=5e-3, rtol=0)


def test_autocast_computes_softmax_layer_norm_and_loss_in_float32(bert):
    x = torch.randn(2, 32)
    with torch.autocast("cpu", dtype=torch.float16):
        product = nn.Linear(32, 32)(x)
        assert product.dtype == torch.float16
        assert cross_entropy(product, LABELS[:2]).dtype == torch.float32
    assert {p.dtype for p in bert.parameters()} == {torch.float32}
