import random
from collections import Counter

import pytest

from bert_lightning.errors import DataError

NAMES = ["体育", "娱乐", "科技"]
SIZES = {"体育": 100, "娱乐": 50, "科技": 30}


def _lone_file(splits, sizes=SIZES):
    labels = [label for label, size in sizes.items() for _ in range(size)]
    random.Random(0).shuffle(labels)
    return splits(titles=labels)


def _counts(news, split):
    return Counter(record.label for record in news.records[split])


def _lines(news, split):
    return [record.line for record in news.records[split]]


def test_a_lone_file_is_split_by_class(splits, load):
    news = load(_lone_file(splits), holdout_ratio=0.1)
    assert _counts(news, "val") == _counts(news, "test") == {"体育": 10, "娱乐": 5, "科技": 3}
    assert _counts(news, "train") == {"体育": 80, "娱乐": 40, "科技": 24}


@pytest.mark.parametrize("ratio", [0.01, 0.1, 0.25, 0.49])
def test_the_parts_of_a_lone_file_are_disjoint_and_complete(splits, ratio, load):
    news = load(_lone_file(splits), holdout_ratio=ratio)
    lines = [line for split in ("train", "val", "test") for line in _lines(news, split)]
    assert sorted(lines) == list(range(1, 181))


def test_the_split_follows_the_seed(splits, load):
    path = _lone_file(splits)
    first, again, other = (load(path, seed=seed) for seed in (1, 1, 2))
    for split in ("train", "val", "test"):
        assert _lines(first, split) == _lines(again, split)
        assert sorted(_lines(first, split)) != sorted(_lines(other, split))


def test_train_rows_keep_the_order_of_the_file(splits, load):
    lines = _lines(load(_lone_file(splits)), "train")
    assert lines == sorted(lines)


def test_what_was_split_off_is_noted(splits, load):
    (note,) = load(_lone_file(splits), seed=7).notes
    assert "no file for val and test" in note
    assert "seed 7" in note
    assert "train 144, val 18, test 18" in note


def test_only_val_is_split_off_beside_a_test_file(splits, load):
    path = splits(train=NAMES * 20, test=NAMES)
    news = load(path)
    assert _counts(news, "val") == dict.fromkeys(NAMES, 2)
    assert _counts(news, "train") == dict.fromkeys(NAMES, 18)
    assert _counts(news, "test") == dict.fromkeys(NAMES, 1)
    assert {record.source for record in news.records["test"]} == {"test.txt"}


def test_nothing_is_split_off_beside_a_val_file(splits, load):
    news = load(splits(train=NAMES * 20, dev=NAMES))
    assert {split: len(records) for split, records in news.records.items()} == {
        "train": 60,
        "val": 3,
    }


def test_the_global_random_state_neither_matters_nor_changes(splits, load):
    path = _lone_file(splits)
    random.seed(1)
    state = random.getstate()
    first = load(path)
    assert random.getstate() == state
    random.seed(2)
    assert _lines(load(path), "val") == _lines(first, "val")


def test_a_class_too_small_to_split_is_refused(splits, load):
    path = _lone_file(splits, {"体育": 20, "娱乐": 2, "科技": 20})
    with pytest.raises(DataError, match=r"at least 3 rows of class '娱乐'.* – found 2") as caught:
        load(path)
    assert len(caught.value.problems) == 1
    assert "give val and test files of your own" in str(caught.value)


@pytest.mark.parametrize("ratio", [0.01, 0.1, 0.3, 0.4, 0.45, 0.49])
@pytest.mark.parametrize("size", [3, 4, 5, 6, 8])
def test_each_class_stays_in_each_part(splits, size, ratio, load):
    sizes = dict.fromkeys(NAMES, size)
    news = load(_lone_file(splits, sizes), holdout_ratio=ratio)
    for split in ("train", "val", "test"):
        assert set(_counts(news, split)) == set(NAMES), split
