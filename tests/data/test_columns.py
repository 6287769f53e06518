import pytest

from bert_lightning.data.columns import (
    BY_NAME,
    Columns,
    choose_columns,
    column_reason,
    is_header,
    refuse_several_labels,
)
from bert_lightning.errors import DataError


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["text", "label"], ("text", "label")),
        (["label", "text_a"], ("text_a", "label")),
        (["category", "news"], ("news", "category")),
        (["input", "target"], ("input", "target")),
        (["label", "label_desc", "sentence", "keywords"], ("sentence", "label_desc")),
        (["label", "label_des", "sentence"], ("sentence", "label_des")),
        (["id", "Title", "Label"], ("Title", "Label")),
        (["", "text", "label"], ("text", "label")),
        (["新闻标题", "频道"], ("新闻标题", "频道")),
        (["label", "headline_zh"], ("headline_zh", "label")),
        (["id", "sentence"], ("sentence", None)),
        (["label_id", "title", "content"], ("title", "label_id")),
    ],
    ids=lambda value: ",".join(map(str, value)),
)
def test_columns_are_told_by_the_names_that_people_give(names, found):
    assert choose_columns(names, "a.csv:1", BY_NAME) == found


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        pytest.param(Columns("content", None), ("content", "label"), id="text"),
        pytest.param(Columns(None, "channel"), ("title", "channel"), id="label"),
        pytest.param(Columns("note", "note2"), ("note", "note2"), id="both"),
        pytest.param(Columns("label", "channel"), ("label", "channel"), id="label as text"),
    ],
)
def test_columns_that_the_user_names_are_taken(columns, found):
    names = ["title", "content", "label", "channel", "note", "note2"]
    assert choose_columns(names, "a.csv:1", columns) == found


def test_all_columns_that_are_missing_are_told_at_once():
    with pytest.raises(DataError) as caught:
        choose_columns(["a", "b"], "a.csv:1", Columns("text", "kind"))
    assert caught.value.problems == [
        "a.csv:1: expected the column 'text' of data.text_column – found a, b",
        "a.csv:1: expected the column 'kind' of data.label_column – found a, b",
    ]


def test_names_that_say_nothing_are_refused_with_the_keys_that_help():
    with pytest.raises(
        DataError, match=r"a\.csv:1: expected a column of texts – found a, b"
    ) as got:
        choose_columns(["a", "b"], "a.csv:1", BY_NAME)
    assert "data.text_column" in str(got.value)
    assert "data.label_column" in str(got.value)


@pytest.mark.parametrize(
    "cells",
    [["text", "label"], ["label", "text_a"], ["Title"], ["id", "title"], ["标题", "标签"]],
    ids=",".join,
)
def test_a_header_is_told_by_its_names(cells):
    assert is_header(cells, BY_NAME)


@pytest.mark.parametrize(
    "cells",
    [["雪豹队夺冠", "体育"], ["news of the day", "3"], ["3", "新片"], ["新闻", "体育"], ["sports"]],
    ids=",".join,
)
def test_a_row_is_no_header(cells):
    assert not is_header(cells, BY_NAME)


def test_a_column_that_the_user_names_makes_a_header():
    assert is_header(["甲", "乙"], Columns(label="乙"))
    assert not is_header(["甲", "乙"], Columns(label="丙"))


def test_the_reason_names_the_columns():
    assert column_reason("a", "b") == "text in 'a', label in 'b'"
    assert column_reason("a", None) == "text in 'a', no column of labels"


@pytest.mark.parametrize("bar", [",", "|", ";", "，"])
def test_rows_of_several_labels_are_refused(bar):
    labels = [f"体育{bar}类{number}" for number in range(30)] + ["科技"] * 30
    with pytest.raises(DataError, match="expected one label a row – found several") as caught:
        refuse_several_labels(labels, "a.csv")
    assert "30 of the first 60 rows" in str(caught.value)


def test_a_few_class_names_may_hold_a_comma():
    assert refuse_several_labels(["影视,娱乐", "体育,健身"] * 50, "a.csv") is None


def test_the_column_that_the_user_names_for_texts_is_not_taken_for_labels():
    columns = Columns(text="category")
    assert choose_columns(["category", "label"], "a.csv:1", columns) == ("category", "label")
