from bert_lightning.data.checks import lone_labels, unknown_labels
from bert_lightning.data.records import LabelTable, Record


def _records(*labels):
    return [Record(f"标题{n}", label, "val.txt", n) for n, label in enumerate(labels, start=1)]


def test_known_labels_give_no_problem():
    labels = LabelTable(["体育", "娱乐"])
    assert unknown_labels(_records("娱乐", "体育", "娱乐"), labels) == []


def test_each_unknown_label_gives_a_problem_with_its_place_and_itself():
    problems = unknown_labels(_records("体育", "财经", "娱乐", "0"), LabelTable(["体育", "娱乐"]))
    assert problems == [
        "val.txt:2: expected one of 体育, 娱乐 – found '财经'",
        "val.txt:4: expected one of 体育, 娱乐 – found '0'",
    ]


def test_an_id_beyond_the_class_names_gives_a_problem_with_the_range():
    names = ["体育", "娱乐"]
    problems = unknown_labels(_records("0", "2"), LabelTable(names, names))
    assert problems == ["val.txt:2: expected a class id from 0 to 1 – found '2'"]


def test_labels_seen_twice_give_no_problem():
    assert lone_labels(_records("体育", "娱乐", "体育", "娱乐")) == []


def test_each_label_seen_once_gives_a_problem():
    problems = lone_labels(_records("体育", "发布", "体育", "夺冠"))
    assert problems == [
        "val.txt:2: expected a label that occurs at least twice – found '发布' once",
        "val.txt:4: expected a label that occurs at least twice – found '夺冠' once",
    ]
