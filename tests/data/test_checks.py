import pytest

from bert_lightning.data.checks import (
    class_indices,
    label_counts,
    leaked_rows,
    lone_labels,
    unknown_labels,
)
from bert_lightning.data.record_table import records_in_memory
from bert_lightning.data.records import LabelTable, Record


def _records(*labels):
    return records_in_memory(
        [Record(f"标题{n}", label, "val.txt", n) for n, label in enumerate(labels, start=1)]
    )


def _titles(*titles):
    return records_in_memory([Record(title, "体育", "a.txt", 1) for title in titles])


def test_known_labels_give_no_fault():
    labels = LabelTable(["体育", "娱乐"])
    assert unknown_labels(_records("娱乐", "体育", "娱乐"), labels) == []


def test_each_unknown_label_gives_a_fault_with_its_place_and_itself():
    faults = unknown_labels(_records("体育", "财经", "娱乐", "0"), LabelTable(["体育", "娱乐"]))
    assert list(map(str, faults)) == [
        "val.txt:2: expected one of 体育, 娱乐 – found '财经'",
        "val.txt:4: expected one of 体育, 娱乐 – found '0'",
    ]


def test_an_id_beyond_the_class_names_gives_a_fault_with_the_range():
    labels = LabelTable(["体育", "娱乐"], {"0": "体育", "1": "娱乐"})
    faults = unknown_labels(_records("0", "2"), labels)
    assert list(map(str, faults)) == ["val.txt:2: expected a class id from 0 to 1 – found '2'"]


def test_each_record_has_a_class_index_and_unknown_labels_have_none():
    labels = LabelTable(["体育", "娱乐"])
    assert class_indices(_records("娱乐", "财经", "体育", None), labels).tolist() == [1, -1, 0, -1]
    assert class_indices(_records(), labels).tolist() == []


def test_labels_are_counted():
    assert label_counts(_records("体育", "娱乐", "体育", None)) == {"体育": 2, "娱乐": 1, None: 1}
    assert label_counts(_records()) == {}


def test_labels_seen_twice_give_no_fault():
    assert lone_labels(_records("体育", "娱乐", "体育", "娱乐")) == {}


def test_each_label_seen_once_gives_a_fault():
    faults = lone_labels(_records("体育", "发布", "体育", "夺冠"))
    assert {label: str(fault) for label, fault in faults.items()} == {
        "发布": "val.txt:2: expected a label that occurs at least twice – found '发布' once",
        "夺冠": "val.txt:4: expected a label that occurs at least twice – found '夺冠' once",
    }


def test_rows_leak_whose_title_stands_in_a_later_split():
    splits = {
        "test": _titles("甲", "图文-丙（图）", "戊"),
        "train": _titles("甲", "乙", "丙", "丁", "甲"),
        "val": _titles("丁", "戊", "己"),
    }
    leaked = leaked_rows(splits)
    assert {split: rows.tolist() for split, rows in leaked.items()} == {
        "train": [True, False, True, True, True],
        "val": [False, True, False],
    }


@pytest.mark.parametrize("split", ["train", "test"])
def test_nothing_leaks_where_there_is_one_split(split):
    assert leaked_rows({split: _titles("甲", "甲")}) == {}
