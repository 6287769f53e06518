import pytest
from made_up import as_records, clean_rows, data_set

from bert_lightning.data.reading import FileFacts
from bert_lightning.data.records import Fault
from bert_lightning.inspection.examination import inspect
from bert_lightning.inspection.results import Subject
from bert_lightning.inspection.screen import as_text, columns_of, printable, shortened


def test_columns_stand_under_each_other_with_chinese_in_them():
    facts = [
        FileFacts("train", "训练集.txt", "", "utf-8", "名字", rows=80),
        FileFacts("test", "t.txt", "", "utf-8", "title<TAB>id", rows=24, blank_lines=3),
    ]
    lines = as_text(inspect(Subject("news", data_set(), files=facts))).splitlines()
    start = lines.index("Files")
    assert lines[start + 1 : start + 4] == [
        "file        split  rows  blank lines  encoding  layout",
        "训练集.txt  train    80            0  utf-8     名字",
        "t.txt       test     24            3  utf-8     title<TAB>id",
    ]


def test_clean_data_fit_on_a_screen():
    text = as_text(inspect(Subject("news", data_set())))
    assert text.startswith("news: no faults, no notes\n")
    assert len(text.splitlines()) <= 40


def test_at_most_twenty_examples_of_a_fault_are_shown():
    faults = [Fault("train.txt", line, "a label", "none") for line in range(1, 3001)]
    text = as_text(inspect(Subject("news", data_set(), faults=faults)))
    assert text.count("\n  train.txt:") == 20
    assert "\n  … and 2,980 more\n" in text


def test_a_hundred_classes_are_cut_with_their_number():
    rows = [(f"第{i}条", f"类{i:03}") for i in range(100)]
    text = as_text(inspect(Subject("news", {"train": as_records(rows)})))
    assert "类023" in text
    assert "类024" not in text
    assert "… and 76 more" in text


def test_titles_cannot_steer_the_terminal():
    rows = [*clean_rows("train"), ("清屏\x1b[2J\u202e", "体育")]
    text = as_text(inspect(Subject("a\x07b", {"train": as_records(rows)})))
    assert "清屏\\x1b[2J\\u202e" in text
    assert all(sign.isprintable() or sign == "\n" for sign in text)


@pytest.mark.parametrize(
    ("text", "columns", "short"),
    [
        ("体育新闻", 8, "体育新闻"),
        ("体育新闻", 7, "体育新…"),
        ("体育新闻", 6, "体育…"),
        ("ab", 9, "ab"),
    ],
)
def test_a_long_text_is_cut_by_columns(text, columns, short):
    assert shortened(text, columns) == short
    assert columns_of(short) <= columns


def test_marks_over_letters_take_no_column():
    assert columns_of("e\u0301") == 1
    assert printable("e\u0301") == "e\u0301"
