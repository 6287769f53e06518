import dataclasses

import pytest

from bert_lightning.data.records import SPLITS, LabelTable, Record
from bert_lightning.errors import DataError

NAMES = ["体育", "娱乐", "科技"]


def test_the_splits_are_called_train_val_and_test():
    assert SPLITS == ("train", "val", "test")


def test_a_record_says_where_it_stands():
    assert Record("雪豹队逆转", "体育", "train.txt", 7).where == "train.txt:7"


def test_a_record_cannot_be_changed():
    record = Record("雪豹队逆转", "体育", "train.txt", 7)
    with pytest.raises(dataclasses.FrozenInstanceError):
        record.label = "娱乐"


def test_names_are_found_at_their_position():
    labels = LabelTable(NAMES)
    assert len(labels) == 3
    assert [labels.index(name) for name in NAMES] == [0, 1, 2]


@pytest.mark.parametrize("label", ["0", "体 育", "", None, "sports"])
def test_an_unknown_label_has_no_index(label):
    assert LabelTable(NAMES).index(label) is None


def test_ids_stand_for_the_names_at_their_position():
    labels = LabelTable(NAMES, NAMES)
    assert [labels.index(str(number)) for number in range(3)] == [0, 1, 2]


@pytest.mark.parametrize("label", ["3", "-1", "01", "1.0", "体育", None])
def test_a_label_that_is_no_id_of_the_table_has_no_index(label):
    assert LabelTable(NAMES, NAMES).index(label) is None


def test_a_table_in_another_order_finds_names_at_their_new_position():
    labels = LabelTable(NAMES).in_order_of(["科技", "体育", "娱乐"])
    assert labels.names == ["科技", "体育", "娱乐"]
    assert [labels.index(name) for name in NAMES] == [1, 2, 0]


def test_a_table_in_another_order_keeps_what_the_ids_stand_for():
    labels = LabelTable(NAMES, NAMES).in_order_of(["科技", "体育", "娱乐"])
    assert [labels.index(str(number)) for number in range(3)] == [1, 2, 0]


def test_a_table_in_the_order_of_more_names_keeps_the_ids():
    labels = LabelTable(NAMES, NAMES).in_order_of(["家居", "科技", "体育", "娱乐"])
    assert len(labels) == 4
    assert [labels.index(str(number)) for number in range(4)] == [2, 3, 1, None]


def test_messages_list_the_names_or_the_range_of_ids():
    assert LabelTable(NAMES).expected == "one of 体育, 娱乐, 科技"
    assert LabelTable(NAMES, NAMES).expected == "a class id from 0 to 2"


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
