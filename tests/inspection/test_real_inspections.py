"""The inspection of real headlines gives the figures of their table of facts."""

from functools import cache

import pytest

from bert_lightning.data.record_table import records_in_memory
from bert_lightning.data.records import LabelTable, Record
from bert_lightning.inspection.examination import inspect
from bert_lightning.inspection.results import Subject

MARKS = ("double_space", "ideographic_space", "replacement_character", "html_entity")
NO_FAULTS_BUT_REPEATS = {"leak", "two_labels"}


def _rows(path, separator, label_first=False):
    for line, text in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
        parts = text.split(separator, 1) if label_first else text.rsplit(separator, 1)
        if len(parts) == 2:
            label, title = parts if label_first else parts[::-1]
            yield Record(title.strip(), label.strip(), path.name, line)


def _records(folder, names, separator="\t", label_first=False):
    return {
        split: records_in_memory(list(_rows(folder / file, separator, label_first)))
        for split, file in names.items()
    }


def _table(file):
    names = file.read_text(encoding="utf-8").split()
    return LabelTable(names, {str(number): name for number, name in enumerate(names)})


def _codes(inspection, severity="fault"):
    return [f.code for f in inspection.findings if f.severity == severity]


def _pairs(inspection):
    return [(pair.exact, pair.by_key) for pair in inspection.shared]


def _marks(inspection, split):
    marks = inspection.splits[split].marks
    assert marks["control_character"].count == 0
    return tuple(marks[name].count for name in MARKS)


@cache
def _ten_classes(folder):
    names = {"train": "train.txt", "val": "dev.txt", "test": "test.txt"}
    records = _records(folder / "thucnews", names)
    return inspect(Subject("thucnews", records, _table(folder / "thucnews" / "class.txt")))


@pytest.mark.parametrize(
    ("split", "rows", "again", "two_labels", "runs"),
    [
        ("train", 45_000, (101, 123), 3, 40_490),
        ("val", 10_000, (7, 8), 0, 8_967),
        ("test", 10_000, (11, 14), 1, 10),
    ],
)
def test_counts_of_ten_classes(real_data, split, rows, again, two_labels, runs):
    found = _ten_classes(real_data).splits[split]
    assert (found.rows, found.two_labels, found.runs) == (rows, two_labels, runs)
    assert (found.repeats.exact, found.repeats.by_key) == again


def test_ten_classes_leak_and_have_no_other_fault(real_data):
    assert _pairs(_ten_classes(real_data)) == [(44, 49), (42, 50), (8, 11)]
    assert set(_codes(_ten_classes(real_data))) == NO_FAULTS_BUT_REPEATS
    assert _codes(_ten_classes(real_data), "note").count("sorted") == 1


@pytest.mark.parametrize(
    ("split", "marks", "lengths"),
    [
        ("train", (116, 17, 204, 24), (4, 19.2, 19, 24, 25, 27, 38)),
        ("val", (24, 1, 33, 5), (4, 19.1, 19, 24, 25, 27, 33)),
        ("test", (25, 3, 27, 6), (4, 19.2, 19, 24, 25, 27, 32)),
    ],
)
def test_characters_of_ten_classes(real_data, split, marks, lengths):
    assert _marks(_ten_classes(real_data), split) == marks
    assert _lengths(_ten_classes(real_data), split) == lengths


def _lengths(inspection, split):
    found = inspection.splits[split].characters
    levels = (found.p50, found.p90, found.p95, found.p99, found.maximum)
    return (found.minimum, round(found.mean, 1), *levels)


def test_the_clean_split_has_no_fault(real_data):
    names = {split: f"{split}.txt" for split in ("train", "val", "test")}
    inspection = inspect(Subject("thucnews4", _records(real_data / "thucnews4", names, " ")))
    assert inspection.faults == []
    assert _pairs(inspection) == [(0, 0)] * 3
    assert [s.repeats.by_key for s in inspection.splits.values()] == [0, 0, 0]
    assert _marks(inspection, "train") == (46, 17, 74, 19)
    assert _marks(inspection, "val") == (12, 3, 15, 6)
    assert _marks(inspection, "test") == (10, 4, 16, 6)
    assert _lengths(inspection, "train") == (3, 20.8, 22, 24, 25, 27, 38)
    assert _lengths(inspection, "val") == (5, 20.8, 22, 24, 25, 27, 31)
    assert _lengths(inspection, "test") == (4, 20.9, 22, 25, 25, 27, 33)
    assert [s.class_rows["体育"] for s in inspection.splits.values()] == [2_650, 500, 500]


def test_the_raw_split_is_sorted_and_repeats_itself(real_data):
    names = {"val": "dev.txt", "test": "test.txt"}
    inspection = inspect(
        Subject("raw", _records(real_data / "thucnews4_raw", names, "\t", label_first=True))
    )
    again = [(s.repeats.exact, s.repeats.by_key) for s in inspection.splits.values()]
    assert again == [(3, 23), (2, 18)]
    assert _pairs(inspection) == [(4, 40)]
    assert [s.runs for s in inspection.splits.values()] == [4, 4]
    assert inspection.faults == []


def test_permuted_names_are_found(real_data):
    folder = real_data / "formats" / "23_names_permuted"
    records = _records(folder, {"val": "dev.txt", "test": "test.txt"})
    inspection = inspect(Subject("23", records))
    assert "wrong_names" in _codes(inspection)
    likely = {wrong.name: wrong.likely for wrong in inspection.wrong_names}
    assert (likely["stocks"], likely["politics"], likely["sports"]) == ("体育", "游戏", "教育")


def test_the_class_file_of_another_copy_is_found(real_data):
    folder = real_data / "formats" / "24_wrong_class_file"
    records = _records(folder, {"val": "dev.txt"})
    inspection = inspect(Subject("24", records, _table(folder / "class.txt")))
    assert _codes(inspection) == ["wrong_names"]
    assert {(wrong.label, wrong.name, wrong.likely) for wrong in inspection.wrong_names} == {
        ("2", "家居", "股票"),
        ("5", "时尚", "社会"),
        ("7", "游戏", "体育"),
        ("8", "娱乐", "游戏"),
    }
    other = inspect(Subject("24", records, _table(folder / "class_other_order.txt")))
    assert len(other.wrong_names) == 8  # of 10; the other two have too few telling titles


@pytest.mark.parametrize(
    ("file", "label_first"),
    [
        ("02_title_tab_name.txt", False),
        ("03_name_tab_title_sorted.txt", True),
        ("04_english_name_tab_title.txt", True),
        ("05_cnews_name_tab_fulltext.txt", True),
    ],
)
def test_names_that_are_right_raise_no_alarm(real_data, file, label_first):
    path = real_data / "formats" / file
    records = _records(path.parent, {"train": file}, label_first=label_first)
    assert inspect(Subject(file, records)).faults == []


def test_a_file_for_predict_in_training_layout_is_told(real_data):
    folder = real_data / "formats" / "34_all_predictions_zero"
    records = _records(folder, {"test": "predict.txt"})
    labels = _table(real_data / "thucnews" / "class.txt")
    assert _codes(inspect(Subject("34", records, labels))) == ["constant_labels"]


def test_val_identical_to_test_is_told(real_data):
    folder = real_data / "formats" / "25_val_equals_test"
    names = {"val": "cnews.val.txt", "test": "cnews.test.txt"}
    digests = dict.fromkeys(names, "a" * 64)
    records = _records(folder, names, label_first=True)
    assert _codes(inspect(Subject("25", records, digests=digests))) == ["identical_splits"]
