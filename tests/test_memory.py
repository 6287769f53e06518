import pytest
from transformers import BertConfig

from bert_lightning.memory import training_memory

BERT_BASE = BertConfig(vocab_size=21_128)
WEIGHTS = 102_270_724
# GiB on an H200 at length 128, from the measurements of the project
MEASURED = [
    ({"is_mixed": False}, {16: 2.97, 32: 4.22, 256: 21.04}),
    ({"is_mixed": True}, {16: 2.75, 32: 3.54, 256: 14.31}),
    ({"is_mixed": True, "is_checkpointed": True}, {16: 2.19, 32: 2.30, 256: 4.33}),
]


@pytest.mark.parametrize(
    ("how", "rows", "gib"),
    [(how, rows, gib) for how, peaks in MEASURED for rows, gib in peaks.items()],
)
def test_the_estimate_is_near_the_measured_peaks_of_bert_base(how, rows, gib):
    estimate = training_memory(BERT_BASE, WEIGHTS, WEIGHTS, rows * 128, **how)
    assert estimate.total == pytest.approx(gib, rel=0.05)


def test_what_is_not_trained_has_no_gradient_and_no_moments():
    whole = training_memory(BERT_BASE, WEIGHTS, WEIGHTS, 4096, is_mixed=False)
    part = training_memory(BERT_BASE, WEIGHTS, WEIGHTS // 2, 4096, is_mixed=False, frozen_layers=6)
    assert part.weights == whole.weights
    assert part.gradients == pytest.approx(whole.gradients / 2)
    assert part.adam == pytest.approx(whole.adam / 2)
    assert part.activations < whole.activations * 0.51


def test_fsdp_shares_out_and_ddp_keeps_a_copy_of_the_gradients():
    one = training_memory(BERT_BASE, WEIGHTS, WEIGHTS, 4096, is_mixed=False)
    four = training_memory(BERT_BASE, WEIGHTS, WEIGHTS, 4096, is_mixed=False, shards=4)
    copied = training_memory(BERT_BASE, WEIGHTS, WEIGHTS, 4096, is_mixed=False, buckets=True)
    assert four.adam == pytest.approx(one.adam / 4)
    assert four.activations == one.activations
    assert copied.total - one.total == pytest.approx(one.gradients)


def test_no_layer_is_counted_where_all_are_frozen():
    frozen = training_memory(
        BERT_BASE, WEIGHTS, 1000, 4096, is_mixed=False, frozen_layers=12, is_checkpointed=True
    )
    assert frozen.activations < 0.1
