import dataclasses

import pytest

from bert_lightning.data.records import (
    SPLITS,
    Fault,
    LabelTable,
    Record,
    item_of,
    plain_text,
    shown,
)
from bert_lightning.errors import DataError

NAMES = ["体育", "娱乐", "科技"]
IDS = {"0": "体育", "1": "娱乐", "2": "科技"}


def test_the_splits_are_called_train_val_and_test():
    assert SPLITS == ("train", "val", "test")


def test_a_record_says_where_it_stands():
    assert Record("雪豹队逆转", "体育", "train.txt", 7).where == "train.txt:7"


def test_a_record_cannot_be_changed():
    record = Record("雪豹队逆转", "体育", "train.txt", 7)
    with pytest.raises(dataclasses.FrozenInstanceError):
        record.label = "娱乐"


def test_a_fault_says_where_what_was_expected_and_what_was_found():
    fault = Fault("train.txt", 7, "a label", "none")
    assert (fault.place, str(fault)) == (
        "train.txt:7",
        "train.txt:7: expected a label – found none",
    )
    assert str(Fault("a.txt", 0, "a text", "a zip")) == "a.txt: expected a text – found a zip"


def test_a_text_without_label_is_a_record_where_there_are_no_labels():
    assert item_of(None, "体育", "a.txt", 1, is_labelled=False) == Record("", None, "a.txt", 1)
    assert item_of(" 甲 ", None, "a.txt", 1, is_labelled=False).text == "甲"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (7, "7"),
        (0, "0"),
        (1.5, "1.5"),
        ("甲", "甲"),
        ("\ud83d甲", "\ufffd甲"),
        ("🎬", "🎬"),
    ],
)
def test_any_value_becomes_text_that_can_be_written(value, text):
    assert plain_text(value) == text


def test_long_texts_are_shown_in_part():
    assert shown(" " + "长" * 100) == repr("长" * 60)


def test_names_are_found_at_their_position():
    labels = LabelTable(NAMES)
    assert len(labels) == 3
    assert [labels.index(name) for name in NAMES] == [0, 1, 2]


@pytest.mark.parametrize("label", ["0", "体 育", "", None, "sports"])
def test_an_unknown_label_has_no_index(label):
    assert LabelTable(NAMES).index(label) is None


def test_ids_stand_for_the_names_at_their_position():
    labels = LabelTable(NAMES, IDS)
    assert [labels.index(str(number)) for number in range(3)] == [0, 1, 2]


@pytest.mark.parametrize("label", ["3", "-1", "01", "1.0", "体育", None])
def test_a_label_that_is_no_id_of_the_table_has_no_index(label):
    assert LabelTable(NAMES, IDS).index(label) is None


def test_a_table_in_another_order_finds_names_at_their_new_position():
    labels = LabelTable(NAMES).in_order_of(["科技", "体育", "娱乐"])
    assert labels.names == ["科技", "体育", "娱乐"]
    assert [labels.index(name) for name in NAMES] == [1, 2, 0]


def test_a_table_in_another_order_keeps_what_the_ids_stand_for():
    labels = LabelTable(NAMES, IDS).in_order_of(["科技", "体育", "娱乐"])
    assert [labels.index(str(number)) for number in range(3)] == [1, 2, 0]


def test_a_table_in_the_order_of_more_names_keeps_the_ids():
    labels = LabelTable(NAMES, IDS).in_order_of(["家居", "科技", "体育", "娱乐"])
    assert len(labels) == 4
    assert [labels.index(str(number)) for number in range(4)] == [2, 3, 1, None]


def test_messages_list_the_names_or_the_range_of_ids():
    assert LabelTable(NAMES).expected == "one of 体育, 娱乐, 科技"
    assert LabelTable(NAMES, IDS).expected == "a class id from 0 to 2"


def test_ids_that_do_not_count_from_zero_are_listed_and_found():
    labels = LabelTable(NAMES, {"100": "体育", "sport": "体育", "103": "科技"})
    assert [labels.index(label) for label in ("100", "sport", "103", "体育")] == [0, 0, 2, None]
    assert labels.expected == "one of 100, sport, 103"


def test_the_table_does_not_follow_later_changes_of_the_list():
    names = list(NAMES)
    labels = LabelTable(names)
    names.reverse()
    assert labels.names == NAMES
    assert labels.index("体育") == 0


@pytest.mark.parametrize(
    ("names", "message"),
    [
        pytest.param(["体育", "娱乐", "体育"], "each name once – found '体育' 2 times", id="twice"),
        pytest.param(["体育"], r"two or more – found \['体育'\]", id="one"),
        pytest.param([], r"two or more – found \[\]", id="none"),
        pytest.param(["体育", " "], "no empty name", id="blank"),
    ],
)
def test_names_that_make_no_classes_are_refused(names, message):
    with pytest.raises(DataError, match=message) as caught:
        LabelTable(names)
    assert "fix class.txt or data.class_names" in str(caught.value)


def test_all_faults_of_the_names_are_told_at_once():
    with pytest.raises(DataError) as caught:
        LabelTable(["体育", "体育"])
    assert len(caught.value.problems) == 2
