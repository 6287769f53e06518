import copy

import pytest
import torch
from scaled_runs import assert_gradients_fit_the_loss
from transformers import BertConfig, BertForSequenceClassification

from bert_lightning.functional_bert import (
    FunctionalBert,
    added_mask,
    product_parameters,
    shape_of,
    weights_of,
)

ROWS, LENGTH = 3, 11


@pytest.fixture
def network():
    torch.manual_seed(1)
    config = BertConfig(
        vocab_size=90,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=20,
        num_labels=5,
    )
    network = BertForSequenceClassification(config)
    with torch.no_grad():
        for parameter in network.parameters():  # biases and norms too, or an exchange is not seen
            parameter.add_(torch.randn_like(parameter) * 0.05)
    return network


@pytest.fixture
def batch():
    ids = torch.randint(0, 90, (ROWS, LENGTH), generator=torch.Generator().manual_seed(2))
    mask = torch.ones_like(ids)
    mask[0, 4:] = 0
    mask[2, 9:] = 0
    return ids, mask


@pytest.mark.parametrize("activation", ["gelu", "relu", "gelu_new"])
def test_logits_and_gradients_are_those_of_transformers(network, batch, activation):
    batch[0][1, 3] = network.config.pad_token_id  # whose embedding gets no gradient
    config = copy.deepcopy(network.config)
    config.hidden_act = activation
    other = BertForSequenceClassification(config)
    other.load_state_dict(network.state_dict())
    other.eval()
    theirs = other(input_ids=batch[0], attention_mask=batch[1]).logits
    expected = torch.autograd.grad(theirs.square().sum(), list(other.parameters()))
    bert = FunctionalBert(shape_of(other, torch.float32), compiled=False)
    ours = bert(*batch, weights_of(other), training=False)
    torch.testing.assert_close(ours, theirs)
    found = torch.autograd.grad(ours.square().sum(), list(other.parameters()))
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


def test_products_in_bf16_are_those_of_transformers_under_autocast(network, batch):
    network.eval()
    with torch.autocast("cpu", torch.bfloat16):
        theirs = network(input_ids=batch[0], attention_mask=batch[1]).logits
    bert = FunctionalBert(shape_of(network, torch.bfloat16), compiled=False)
    ours = bert(*batch, weights_of(network), training=False)
    assert ours.dtype == torch.float32
    torch.testing.assert_close(ours, theirs.float(), atol=0.02, rtol=0.02)


def test_layers_that_are_computed_again_give_the_same_gradients(network, batch):
    network.gradient_checkpointing_enable({"use_reentrant": False})
    shape = shape_of(network, torch.float32).without_dropout()
    parameters = list(network.parameters())
    gradients = []
    for checkpointed in (True, False):
        bert = FunctionalBert(shape._replace(checkpointed=checkpointed), compiled=False)
        loss = bert(*batch, weights_of(network)).square().sum()
        gradients.append(torch.autograd.grad(loss, parameters))
    assert shape_of(network, torch.float32).checkpointed
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(("compiled", "is_full"), [(False, True), (True, False)])
def test_layers_that_are_computed_again_draw_the_same_dropout(network, batch, compiled, is_full):
    assert_gradients_fit_the_loss(network, *batch, compiled=compiled, is_full=is_full)


def test_dropout_is_that_of_the_network_and_left_out_of_evaluation(network, batch):
    network.dropout.p = 0.3
    shape = shape_of(network, torch.float32)
    assert (shape.hidden_dropout, shape.attention_dropout, shape.head_dropout) == (0.1, 0.1, 0.3)
    bert = FunctionalBert(shape, compiled=False)
    weights = weights_of(network)
    first, second = bert(*batch, weights), bert(*batch, weights)
    assert not torch.equal(first, second)
    assert torch.equal(bert(*batch, weights, False), bert(*batch, weights, False))


def test_a_row_without_pieces_gives_numbers(network, batch):
    ids, mask = batch
    mask[1] = 0
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        bert = FunctionalBert(shape_of(network, dtype), compiled=False)
        assert bert(ids, mask, weights_of(network), False).isfinite().all()


def test_rows_of_the_mask_lie_aligned_at_any_length():
    for length in (7, 8, 20):
        given = torch.ones(ROWS, length)
        given[0, 5:] = 0
        mask = added_mask(given, torch.float16, 20)
        assert mask.shape == (ROWS, 1, length, length)
        assert mask.stride() == (32, 32, 0, 1)
        assert torch.equal(mask[0, 0, 3] == 0, given[0] == 1)
        assert mask[1].count_nonzero() == 0


def test_without_padding_there_is_no_need_of_a_mask(network, batch):
    ids, mask = batch
    bert = FunctionalBert(shape_of(network, torch.float32), compiled=False)
    weights = weights_of(network)
    with_mask = bert(ids, torch.ones_like(mask), weights, False)
    torch.testing.assert_close(bert(ids, None, weights, False), with_mask)


def test_products_are_all_matrices_and_biases_of_linear_layers(network):
    names = {name for name, p in network.named_parameters() if p in product_parameters(network)}
    assert len(names) == 2 * (6 * 2 + 2)
    assert not [name for name in names if "LayerNorm" in name or "embeddings" in name]
