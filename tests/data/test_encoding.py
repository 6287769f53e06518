import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

from bert_lightning.data import encoding
from bert_lightning.data.encoding import (
    EncodedRows,
    RowTable,
    encode,
    encoding_key,
    open_encoded,
    store_encoded,
)
from bert_lightning.data.storage import open_arrow
from bert_lightning.demo.mini_bert import mini_tokenizer
from bert_lightning.demo.news import made_up_news
from bert_lightning.errors import DataError

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
    start = rows.table.starts[number]
    return rows.values[start : start + rows.lengths[number]].tolist()


def _all_ids(rows):
    return [_ids(rows, number) for number in range(len(rows))]


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
    starts = np.cumsum(lengths) - lengths
    values = random.integers(1, 6_000, size=lengths.sum()).astype(np.int32)
    table = RowTable(starts, lengths, lengths, np.zeros_like(lengths))
    rows = EncodedRows(values, table, np.arange(50), pad, 40)
    for size in (1, 2, 7, 32):
        indices = random.integers(0, 50, size=size).tolist()
        batch = rows.__getitems__(indices)
        input_ids, mask = _slow_batch(rows, indices, pad)
        assert batch["input_ids"].tolist() == input_ids
        assert batch["attention_mask"].tolist() == mask
        assert batch["is_full"] is bool(np.all(mask))
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


# --- what is kept of long texts -----------------------------------------------------------------


def _slow_row(tokenizer, text, max_length, truncation):
    """Cut with plain lists."""
    pieces = tokenizer(text, add_special_tokens=False).input_ids
    room = max_length - 2
    if len(pieces) > room:
        first = {"head": room, "tail": 0, "head_tail": max_length // 4}[truncation]
        pieces = pieces[:first] + pieces[len(pieces) - (room - first) :]
    return [tokenizer.cls_token_id, *pieces, tokenizer.sep_token_id]


@pytest.mark.parametrize("truncation", ["head", "tail", "head_tail"])
@pytest.mark.parametrize("max_length", MAX_LENGTHS)
def test_each_truncation_equals_a_slow_reference(tokenizer, max_length, truncation):
    rows = encode(TEXTS, None, tokenizer, max_length, truncation)
    assert _all_ids(rows) == [_slow_row(tokenizer, text, max_length, truncation) for text in TEXTS]
    assert rows.pieces.tolist() == [len(ids) for ids in tokenizer(TEXTS).input_ids]
    assert rows.truncated == sum(len(ids) > max_length for ids in tokenizer(TEXTS).input_ids)


def test_head_and_tail_are_128_and_382_pieces_at_length_512(tokenizer):
    rows = encode(["头" * 1_000 + "尾" * 382], None, tokenizer, 512, "head_tail")
    head, tail = tokenizer.convert_tokens_to_ids(["头", "尾"])
    assert _ids(rows, 0)[1:-1] == [head] * 128 + [tail] * 382


def test_unknown_pieces_are_counted_among_those_that_are_kept(tokenizer):
    text = "龘" * 20 + "雪" * 20
    assert encode([text], None, tokenizer, 22, "head").unknown_ratio == 20 / 22
    assert encode([text], None, tokenizer, 22, "tail").unknown_ratio == 0.0


def test_texts_may_come_from_whoever_uses_the_tokenizer_at_the_same_time(tokenizer, monkeypatch):
    monkeypatch.setattr(encoding, "_CHUNK_TEXTS", 2)

    def texts():
        for text in TEXTS:
            tokenizer(text, truncation=True, max_length=4, padding="max_length")
            yield text

    assert _all_ids(encode(texts(), None, tokenizer, 64)) == _all_ids(
        encode(TEXTS, None, tokenizer, 64)
    )


# --- some of the rows ---------------------------------------------------------------------------


def test_selected_rows_come_in_the_order_asked_for_with_their_own_labels(tokenizer):
    rows = encode(TEXTS, list(range(len(TEXTS))), tokenizer, 16)
    wanted = np.array([9, 2, 2, 12])
    some = rows.select(wanted, np.array([5, 6, 7, 8]))
    assert _all_ids(some) == [_ids(rows, number) for number in wanted]
    batch = some.__getitems__([3, 0])
    assert batch["labels"].tolist() == [8, 5]
    assert batch["rows"].tolist() == [3, 0]
    assert batch["input_ids"].tolist() == rows.__getitems__([12, 9])["input_ids"].tolist()
    assert some.values is rows.values


def test_the_numbers_of_a_selection_are_those_of_its_rows(tokenizer):
    rows = encode(["雪", "雪" * 30, "龘龘", "长" * 90], [0, 1, 0, 1], tokenizer, 16)
    some = rows.select(np.array([3, 2]), None)
    assert some.labels is None
    assert some.lengths.tolist() == [16, 4]
    assert some.pieces.tolist() == [92, 4]
    assert (some.truncated, rows.truncated) == (1, 2)
    assert some.unknown_ratio == 2 / 20
    assert rows.select(np.array([], dtype=np.int64), None).unknown_ratio == 0.0


# --- width --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pieces", "multiple", "width"),
    [(10, 8, 16), (16, 8, 16), (17, 8, 20), (20, 8, 20), (10, 1, 10), (10, 64, 20), (3, 2, 4)],
)
def test_width_is_a_multiple_but_never_above_max_length(tokenizer, pieces, multiple, width):
    rows = encode(["雪" * (pieces - 2), "雪"], None, tokenizer, 20, pad_to_multiple_of=multiple)
    for some in (rows, rows.select(np.array([0, 1]), None)):
        batch = some.__getitems__([1, 0])
        assert batch["input_ids"].shape == batch["attention_mask"].shape == (2, width)
        assert batch["attention_mask"].sum(dim=1).tolist() == [3, pieces]
        assert (batch["input_ids"][batch["attention_mask"] == 0] == tokenizer.pad_token_id).all()


# --- stored -------------------------------------------------------------------------------------

NEWS = [record.text for record in made_up_news("val")[:300]]


@pytest.fixture
def small_parts(monkeypatch):
    """Make 300 headlines many parts and several record batches."""
    monkeypatch.setattr(encoding, "_CHUNK_TEXTS", 7)
    monkeypatch.setattr(encoding, "_RECORD_BATCH_PIECES", 1_000)


def _stored(folder, texts, tokenizer, max_length=64, truncation="head", num_proc=None):
    store_encoded(folder, texts, tokenizer, max_length, truncation, num_proc)
    return open_encoded(folder, tokenizer.pad_token_id, max_length)


def _assert_same(rows, expected):
    assert _all_ids(rows) == _all_ids(expected)
    for name in ("lengths", "pieces", "unknown"):
        assert getattr(rows.table, name).tolist() == getattr(expected.table, name).tolist()
        assert getattr(rows.table, name).dtype == np.int64


@pytest.mark.parametrize("truncation", ["head", "tail", "head_tail"])
def test_stored_rows_equal_those_in_memory(tokenizer, tmp_path, small_parts, truncation):
    rows = _stored(tmp_path, iter(NEWS + TEXTS), tokenizer, 32, truncation)
    _assert_same(rows, encode(NEWS + TEXTS, None, tokenizer, 32, truncation))
    assert open_arrow(tmp_path / "rows.arrow").column("input_ids").num_chunks > 3


def test_batches_across_record_batches_equal_those_in_memory(tokenizer, tmp_path, small_parts):
    rows = _stored(tmp_path, NEWS, tokenizer).select(np.arange(300)[::-1], np.arange(300))
    expected = encode(NEWS[::-1], list(range(300)), tokenizer, 64)
    for indices in np.random.default_rng(0).integers(0, 300, size=(20, 32)):
        batch, reference = rows.__getitems__(indices.tolist()), expected.__getitems__(indices)
        for name in ("input_ids", "attention_mask", "labels"):
            assert torch.equal(batch[name], reference[name])


@pytest.mark.parametrize(("first", "number"), [(0, 300), (3, 290), (120, 20), (299, 1), (5, 0)])
def test_a_part_of_a_table_gives_its_own_rows(
    tokenizer, tmp_path, small_parts, monkeypatch, first, number
):
    store_encoded(tmp_path, NEWS, tokenizer, 64, "head", None)
    monkeypatch.setattr(encoding, "open_arrow", lambda path: open_arrow(path).slice(first, number))
    rows = open_encoded(tmp_path, 0, 64)
    _assert_same(rows, encode(NEWS[first : first + number], None, tokenizer, 64))


def test_stored_ids_are_read_from_the_file_itself(tokenizer, tmp_path, small_parts):
    rows = _stored(tmp_path, NEWS, tokenizer)
    assert rows.values.nbytes == (tmp_path / "rows.arrow").stat().st_size
    assert not rows.values.flags.owndata
    assert not rows.values.flags.writeable


def test_headlines_are_stored_as_one_record_batch(tokenizer, tmp_path):
    store_encoded(tmp_path, NEWS * 40, tokenizer, 64, "head", None)
    assert open_arrow(tmp_path / "rows.arrow").column("input_ids").num_chunks == 1


def test_no_texts_are_stored_as_no_rows(tokenizer, tmp_path):
    rows = _stored(tmp_path, [], tokenizer)
    assert len(rows) == 0
    assert rows.unknown_ratio == 0.0


def test_texts_are_taken_as_they_are_needed(tokenizer, small_parts):
    taken = []
    stream = (taken.append(text) or text for text in NEWS)
    scheme = encoding._scheme(tokenizer, 64, "head")
    next(encoding._encoded(stream, tokenizer, scheme, None))
    assert len(taken) <= 8


def test_a_part_is_small_in_characters_too(tokenizer, monkeypatch):
    monkeypatch.setattr(encoding, "_CHUNK_CHARACTERS", 10)
    parts = list(encoding._parts(["甲" * 4, "乙" * 8, "丙" * 30, "丁"]))
    assert parts == [["甲" * 4, "乙" * 8], ["丙" * 30], ["丁"]]


# --- worker processes ---------------------------------------------------------------------------


def test_worker_processes_give_the_same_rows_in_order(tokenizer, tmp_path, small_parts):
    tokenizer.backend_tokenizer.encode_batch_fast(NEWS)  # this process has threads by now
    rows = _stored(tmp_path, iter(NEWS + TEXTS), tokenizer, 32, "head_tail", num_proc=2)
    _assert_same(rows, encode(NEWS + TEXTS, None, tokenizer, 32, "head_tail"))
    assert multiprocessing.active_children() == []


def test_a_worker_that_dies_gives_an_error_in_words(tokenizer, tmp_path, small_parts):
    def texts():
        for number, text in enumerate(NEWS):
            if number == 100:
                os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)
            yield text

    with pytest.raises(DataError) as caught:
        store_encoded(tmp_path, texts(), tokenizer, 64, "head", 1)
    assert str(caught.value) == (
        "data.num_proc: expected 1 worker processes that tokenise to the end – found one that"
        " died, most often because the memory was full\n"
        "give a smaller --data.num_proc, or null to tokenise in this process"
    )
    assert multiprocessing.active_children() == []


ENDLESS = """
import itertools, multiprocessing, sys
from pathlib import Path
from bert_lightning.data import encoding
from bert_lightning.demo.mini_bert import mini_tokenizer

def texts():
    for number in itertools.count():
        if number == 1_000:
            print(*(child.pid for child in multiprocessing.active_children()), flush=True)
        yield "雪豹队"

if __name__ == "__main__":
    encoding._CHUNK_TEXTS = 10
    encoding.store_encoded(Path(sys.argv[1]), texts(), mini_tokenizer(), 16, "head", 2)
"""


def _is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc")  # noqa: PTH112
def test_workers_end_when_their_parent_is_killed(tmp_path):
    script = tmp_path / "endless.py"
    script.write_text(ENDLESS, encoding="utf-8")
    command = [sys.executable, str(script), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        workers = [int(pid) for pid in process.stdout.readline().split()]
        process.kill()
    assert len(workers) == 2
    deadline = time.monotonic() + 20
    while any(map(_is_running, workers)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(_is_running, workers))


# --- key ----------------------------------------------------------------------------------------


def test_the_key_is_json_and_the_same_in_another_process(tokenizer):
    code = (
        "import json; from bert_lightning.data.encoding import encoding_key\n"
        "from bert_lightning.demo.mini_bert import mini_tokenizer\n"
        "print(json.dumps(encoding_key(mini_tokenizer(), 64, 'head')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == encoding_key(tokenizer, 64, "head")


def test_the_key_does_not_depend_on_earlier_calls_of_the_tokenizer(tokenizer):
    before = encoding_key(tokenizer, 64, "head")
    tokenizer(TEXTS, truncation=True, max_length=5, padding="max_length")
    assert encoding_key(tokenizer, 64, "head") == before


def test_the_key_depends_on_all_that_decides_the_ids(tokenizer, monkeypatch):
    from transformers import BertTokenizer

    vocabulary = tokenizer.get_vocab()
    swapped = {**vocabulary, "雪": vocabulary["豹"], "豹": vocabulary["雪"]}
    keys = [
        encoding_key(tokenizer, 64, "head"),
        encoding_key(tokenizer, 65, "head"),
        encoding_key(tokenizer, 64, "tail"),
        encoding_key(tokenizer, 64, "head_tail"),
        encoding_key(BertTokenizer(vocab=swapped, do_lower_case=True), 64, "head"),
        encoding_key(BertTokenizer(vocab=vocabulary, do_lower_case=False), 64, "head"),
        encoding_key(BertTokenizer(vocab=vocabulary, cls_token="[MASK]"), 64, "head"),
    ]
    monkeypatch.setattr(encoding, "ENCODING_VERSION", 2)
    keys.append(encoding_key(tokenizer, 64, "head"))
    assert len({json.dumps(key) for key in keys}) == len(keys)
