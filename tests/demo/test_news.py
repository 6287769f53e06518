import hashlib
import itertools
import random
import re
import subprocess
import sys
import time
import unicodedata
from collections import Counter

import pytest

from bert_lightning.data.records import SPLITS
from bert_lightning.demo.news import CORPUS_CLASSES, ROWS_PER_CLASS, made_up_news, write_corpus

# Of "title label\n" over train, val and test. Changes only together with CORPUS_VERSION.
CORPUS_SHA256 = "bee0342c0922c2cba6058b731ded39413a3cc704b69c32ac2b617fd8dbf9b54a"


def _everything():
    return [record for split in SPLITS for record in made_up_news(split)]


def test_the_corpus_is_the_same_on_every_machine():
    text = "".join(f"{record.text} {record.label}\n" for record in _everything())
    assert hashlib.sha256(text.encode()).hexdigest() == CORPUS_SHA256


def test_making_the_corpus_leaves_the_global_random_state_alone():
    # In a fresh process, because the corpus is made once a process.
    code = (
        "import random; from bert_lightning.demo.news import made_up_news; random.seed(7); "
        "before = random.getstate(); made_up_news('val'); assert random.getstate() == before"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_global_seed_does_not_change_the_corpus():
    from bert_lightning.demo import news

    random.seed(1)
    first = made_up_news("train")
    news._corpus.cache_clear()
    random.seed(2)
    assert made_up_news("train") == first


def test_twenty_thousand_titles_take_less_than_a_second_and_a_half():
    from bert_lightning.demo import news

    news._corpus.cache_clear()
    start = time.process_time()
    made_up_news("train")
    assert time.process_time() - start < 1.5


@pytest.mark.parametrize(("split", "rows"), [("train", 4_000), ("val", 500), ("test", 500)])
def test_every_class_has_the_same_number_of_titles(split, rows):
    counts = Counter(record.label for record in made_up_news(split))
    assert counts == dict.fromkeys(CORPUS_CLASSES, rows)


def test_the_splits_add_up_to_five_thousand_titles_a_class():
    assert len(_everything()) == ROWS_PER_CLASS * len(CORPUS_CLASSES)


def test_no_title_comes_twice_within_or_across_splits():
    titles = [record.text for record in _everything()]
    assert len(set(titles)) == len(titles)


def test_titles_differ_by_more_than_blanks_signs_and_picture_marks():
    keys = set()
    for record in _everything():
        text = unicodedata.normalize("NFKC", record.text).lower()
        text = re.sub(r"^(组图|快讯|独家|视频):|\((组?图)\)$", "", text)
        keys.add(re.sub(r"\W", "", text))
    assert len(keys) == len(_everything())


def test_records_know_their_split_and_their_line():
    for split in SPLITS:
        records = made_up_news(split)
        assert {record.source for record in records} == {f"built-in/{split}"}
        assert [record.line for record in records] == list(range(1, len(records) + 1))


def test_a_changed_list_does_not_change_the_next_one():
    made_up_news("val").clear()
    assert made_up_news("val")


def test_splits_are_shuffled():
    labels = [record.label for record in made_up_news("test")]
    assert sum(a != b for a, b in itertools.pairwise(labels)) > 1_300  # 1,500 expected


def test_titles_look_like_headlines():
    titles = [record.text for record in _everything()]
    assert all(8 <= len(title) <= 30 for title in titles)
    assert all(title == " ".join(title.split()) for title in titles)
    assert not any(sign in title for title in titles for sign in "{}|~_\t")
    for sign in (" ", "（图）", "(组图)", "：", "《", "iPhone", "GB", "%"):
        assert any(sign in title for title in titles), sign


def test_no_title_ends_like_a_label():
    assert not any(
        record.text.endswith(f" {name}") for record in _everything() for name in CORPUS_CLASSES
    )


@pytest.mark.parametrize(
    ("words", "topic"),
    [("梅开二度", "体育"), ("婚讯曝光", "娱乐"), ("含水率", "家居"), ("首发价", "科技")],
)
def test_a_few_labels_are_wrong(words, topic):
    labels = [record.label for record in _everything() if words in record.text]
    assert 0.01 < sum(label != topic for label in labels) / len(labels) < 0.08


@pytest.mark.parametrize("word", ["苹果", "冠军", "《主场》", "手机", "星河"])
def test_classes_share_their_vocabulary(word):
    counts = Counter(record.label for record in _everything() if word in record.text)
    assert len(counts) == len(CORPUS_CLASSES)
    assert counts.most_common(2)[1][1] >= 0.05 * sum(counts.values())


def test_the_written_files_hold_the_title_then_a_blank_then_the_label(tmp_path):
    write_corpus(tmp_path / "new" / "folder")
    for split in SPLITS:
        content = (tmp_path / "new" / "folder" / f"{split}.txt").read_bytes()
        assert b"\r" not in content
        assert content.endswith(b"\n")
        rows = [line.rsplit(" ", 1) for line in content.decode("utf-8").splitlines()]
        assert rows == [[record.text, record.label] for record in made_up_news(split)]


@pytest.mark.slow
def test_a_linear_model_finds_the_corpus_neither_trivial_nor_hopeless():
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    model = make_pipeline(
        TfidfVectorizer(analyzer="char", ngram_range=(1, 2)), LogisticRegression()
    )
    data = {split: made_up_news(split) for split in SPLITS}
    texts = {split: [record.text for record in records] for split, records in data.items()}
    labels = {split: [record.label for record in records] for split, records in data.items()}
    model.fit(texts["train"], labels["train"])
    assert 0.90 < model.score(texts["test"], labels["test"]) < 0.96
