"""Real headlines are read as their table of facts says."""

import pytest

from bert_lightning.data.encoding import encode
from bert_lightning.data.loading import load_news
from bert_lightning.data.storage import Storage
from bert_lightning.demo.mini_bert import mini_tokenizer
from bert_lightning.errors import DataError


@pytest.fixture
def storage(tmp_path):
    return Storage(tmp_path)


def test_the_four_class_split_is_read_whole(real_data, storage):
    news = load_news(str(real_data / "thucnews4"), storage)
    sizes = {split: len(rows) for split, rows in news.records.items()}
    assert sizes == {"train": 10_600, "val": 2_000, "test": 2_000}
    assert len(news.labels) == 4
    assert max(len(record.text) for record in news.records["train"]) == 38
    assert sum(" " in record.text for record in news.records["train"]) == 7_595


def test_the_ten_class_split_is_read_whole(real_data, storage):
    news = load_news(str(real_data / "thucnews"), storage)
    sizes = {split: len(rows) for split, rows in news.records.items()}
    assert sizes == {"train": 45_000, "val": 10_000, "test": 10_000}
    assert news.labels.names[:2] == ["finance", "realty"]
    labels = [news.labels.index(record.label) for record in news.records["test"]]
    assert [labels.count(index) for index in range(10)] == [1_000] * 10


def test_a_row_without_tab_is_named(real_data, storage):
    with pytest.raises(DataError, match=r"test\.txt:6: expected a label, a TAB and a title"):
        load_news(str(real_data / "thucnews4_raw" / "test.txt"), storage)


def test_the_built_in_vocabulary_serves_real_titles(real_data, storage):
    records = load_news(str(real_data / "thucnews4"), storage).records["train"]
    rows = encode([record.text for record in records], None, mini_tokenizer(), 128)
    assert rows.truncated == 0
    assert rows.unknown_ratio < 0.002
