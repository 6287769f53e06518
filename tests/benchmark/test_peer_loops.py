import pytest

from bert_lightning.benchmark.peer_loops import CountingCollator
from bert_lightning.demo.mini_bert import mini_tokenizer


def rows(*lengths):
    return [
        {"input_ids": [7] * length, "attention_mask": [1] * length, "labels": 0}
        for length in lengths
    ]


@pytest.mark.parametrize(("multiple", "width"), [(None, 9), (8, 16)])
def test_a_batch_is_padded_and_its_padding_is_counted_apart(multiple, width):
    collate = CountingCollator(mini_tokenizer(), multiple)
    batch = collate(rows(4, 9, 5))
    assert batch["input_ids"].shape == (3, width)
    assert collate.next_count() == (3, 18, 3 * width)
    assert int(batch["attention_mask"].sum()) == 18


def test_counts_of_batches_fetched_ahead_come_out_in_order():
    collate = CountingCollator(mini_tokenizer(), None)
    for lengths in ((3, 3), (5,), (4, 4, 4)):
        collate(rows(*lengths))
    assert [collate.next_count() for _ in range(3)] == [(2, 6, 6), (1, 5, 5), (3, 12, 12)]
