import numpy as np
import pytest
import torch

from bert_lightning.data.encoding import EncodedRows, encode
from bert_lightning.demo.mini_bert import mini_tokenizer
from bert_lightning.demo.news import made_up_news

TEXTS = [
    "",
    " ",
    "雪豹队加时逆转",
    "新款iPhone 15 Pro发布 售价￥599起",
    "“深海”行动：8.5折…3×4厘米",
    "ＡＢ２ ｃｏｍ　全角",
    "Café naïve ÉCOLE",
    "日本語のタイトル 한국어 заголовок",
    "🎬首映🎬",
    "龘靐齉",
    "甲\u2028乙\u0085丙\u200b丁\ufeff戊",
    "a" * 250,
    "长" * 600,
    "[SEP]注入[CLS][MASK][UNK][PAD]",
    "tab\there\x00null\x07bell",
    "…" * 20,
]
MAX_LENGTHS = [3, 4, 16, 128, 512]


@pytest.fixture(scope="module")
def tokenizer():
    return mini_tokenizer()


def _ids(rows, number):
    return rows.values[rows.offsets[number] : rows.offsets[number + 1]].tolist()


@pytest.mark.parametrize("max_length", MAX_LENGTHS)
def test_rows_equal_those_of_the_tokenizer_itself(tokenizer, max_length):
    texts = [*TEXTS, *(record.text for record in made_up_news("val")[:200])]
    rows = encode(texts, None, tokenizer, max_length)
    expected = tokenizer(texts, truncation=True, max_length=max_length).input_ids
    assert len(rows) == len(texts)
    assert [_ids(rows, number) for number in range(len(rows))] == expected


def test_rows_equal_those_of_the_tokenizer_even_after_it_was_told_to_cut_and_pad(tokenizer):
    tokenizer(TEXTS, truncation=True, max_length=5, padding="max_length")
    rows = encode(TEXTS, None, tokenizer, 64)
    assert [_ids(rows, number) for number in range(len(rows))] == tokenizer(
        TEXTS, truncation=True, max_length=64
    ).input_ids


@pytest.mark.parametrize("max_length", MAX_LENGTHS)
def test_rows_that_were_cut_are_counted(tokenizer, max_length):
    whole = [len(ids) for ids in tokenizer(TEXTS).input_ids]
    rows = encode(TEXTS, None, tokenizer, max_length)
    assert rows.truncated == sum(length > max_length for length in whole)
    assert rows.lengths.tolist() == [min(length, max_length) for length in whole]


def test_a_row_that_just_fits_is_not_counted_as_cut(tokenizer):
    assert encode(["雪" * 8], None, tokenizer, 10).truncated == 0
    assert encode(["雪" * 9], None, tokenizer, 10).truncated == 1


def test_the_share_of_unknown_pieces_equals_a_count(tokenizer):
    rows = encode(TEXTS, None, tokenizer, 64)
    pieces = [piece for number in range(len(rows)) for piece in _ids(rows, number)]
    expected = sum(piece == tokenizer.unk_token_id for piece in pieces) / len(pieces)
    assert rows.unknown_ratio == pytest.approx(expected)
    assert rows.unknown_ratio > 0


def test_known_text_has_no_unknown_pieces(tokenizer):
    assert encode(["雪豹队夺冠", ""], None, tokenizer, 64).unknown_ratio == 0.0


def test_an_empty_text_is_cls_and_sep(tokenizer):
    rows = encode([""], None, tokenizer, 16)
    assert _ids(rows, 0) == [tokenizer.cls_token_id, tokenizer.sep_token_id]


def test_no_texts_give_no_rows(tokenizer):
    rows = encode([], None, tokenizer, 16)
    assert len(rows) == 0
    assert rows.lengths.tolist() == []
    assert rows.unknown_ratio == 0.0


def test_labels_stay_with_their_rows(tokenizer):
    rows = encode(["甲", "乙丙", "丁"], [2, 0, 1], tokenizer, 16)
    batch = rows.__getitems__([2, 0, 0])
    assert batch["labels"].tolist() == [1, 2, 2]
    assert batch["labels"].dtype == torch.int64


def test_rows_to_predict_have_no_labels(tokenizer):
    assert "labels" not in encode(["甲"], None, tokenizer, 16).__getitems__([0])


def _slow_batch(rows, indices, pad):
    """Pad with lists and loops."""
    pieces = [_ids(rows, number) for number in indices]
    longest = max(len(ids) for ids in pieces)
    input_ids = [ids + [pad] * (longest - len(ids)) for ids in pieces]
    mask = [[1] * len(ids) + [0] * (longest - len(ids)) for ids in pieces]
    return input_ids, mask


@pytest.mark.parametrize("pad", [0, 7])
def test_batches_equal_a_slow_reference(pad):
    random = np.random.default_rng(1)
    lengths = random.integers(2, 40, size=50)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    values = random.integers(1, 6_000, size=offsets[-1]).astype(np.int32)
    rows = EncodedRows(values, offsets, np.arange(50), pad, 0, 0.0)
    for size in (1, 2, 7, 32):
        indices = random.integers(0, 50, size=size).tolist()
        batch = rows.__getitems__(indices)
        input_ids, mask = _slow_batch(rows, indices, pad)
        assert batch["input_ids"].tolist() == input_ids
        assert batch["attention_mask"].tolist() == mask
        assert batch["labels"].tolist() == batch["rows"].tolist() == indices


def test_all_tensors_of_a_batch_are_int64_and_row_numbers_stay_on_the_host(tokenizer):
    batch = encode(["甲", "乙丙"], [0, 1], tokenizer, 16).__getitems__([0, 1])
    for name in ("input_ids", "attention_mask", "labels"):
        assert batch[name].dtype == torch.int64
    assert batch["input_ids"].shape == batch["attention_mask"].shape == (2, 4)
    assert isinstance(batch["rows"], np.ndarray)


def test_a_batch_is_no_wider_than_its_longest_row(tokenizer):
    rows = encode(["甲", "长" * 100], None, tokenizer, 128)
    assert rows.__getitems__([0])["input_ids"].shape == (1, 3)


def test_one_row_is_a_batch_of_one(tokenizer):
    rows = encode(["甲", "乙丙"], [0, 1], tokenizer, 16)
    assert rows[1]["input_ids"].tolist() == rows.__getitems__([1])["input_ids"].tolist()


def test_changing_a_batch_does_not_change_the_rows(tokenizer):
    rows = encode(["甲", "乙丙"], [0, 1], tokenizer, 16)
    batch = rows.__getitems__([0, 1])
    before = batch["labels"].tolist()
    batch["input_ids"].zero_()
    batch["labels"].fill_(9)
    again = rows.__getitems__([0, 1])
    assert again["labels"].tolist() == before
    assert (
        again["input_ids"].tolist()
        == encode(["甲", "乙丙"], None, tokenizer, 16).__getitems__([0, 1])["input_ids"].tolist()
    )
