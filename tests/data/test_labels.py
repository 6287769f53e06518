import pytest

from bert_lightning.data.labels import Trained
from bert_lightning.errors import CheckpointError, DataError

NAMES = ["体育", "娱乐", "科技"]
TRAINED = Trained(["科技", "体育", "娱乐"], "another", must_be_same=False)


def _write_ids(write, classes, rows):
    write("news/class.txt", classes)
    write("news/train.txt", "".join(f"标题{n}\t{label}\n" for n, label in enumerate(rows)))


def rows_of(labels, start=0):
    return [(f"第{number}条 标题", label) for number, label in enumerate(labels, start)]


def indices(news, split):
    return [news.labels.index(record.label) for record in news.records[split]]


# --- class names -------------------------------------------------------------------------------


def test_ids_stand_for_the_lines_of_the_class_file(splits, load):
    path = splits(classes=NAMES, train="012012", val="01", test="2")
    news = load(path)
    assert news.labels.names == NAMES
    assert indices(news, "train") == [0, 1, 2, 0, 1, 2]
    assert indices(news, "val") == [0, 1]
    assert indices(news, "test") == [2]
    assert news.notes == []


def test_names_in_the_class_file_keep_their_order(splits, load):
    names = ["科技", "体育", "娱乐"]
    path = splits(classes=names, train=[*NAMES, *NAMES], val=NAMES, test=NAMES)
    news = load(path)
    assert news.labels.names == names
    assert indices(news, "val") == [1, 2, 0]


@pytest.mark.parametrize("separator", ["\t", " "], ids=["TAB", "blank"])
def test_names_from_the_data_are_sorted(splits, separator, load):
    labels = ["科技", "体育", "娱乐", "科技", "体育", "娱乐"]
    path = splits(separator=separator, train=labels, val=["体育"], test=["科技"])
    news = load(path)
    assert news.labels.names == sorted(NAMES)
    assert indices(news, "train") == [sorted(NAMES).index(label) for label in labels]


def test_ids_without_class_file_are_sorted_as_numbers(splits, load):
    labels = [str(number) for number in range(12)] * 2
    path = splits(train=labels[::-1], val=["10"], test=["2"])
    news = load(path)
    assert news.labels.names == [str(number) for number in range(12)]
    assert indices(news, "val") == [10]


def test_a_blank_tail_of_the_class_file_makes_no_class(splits, load):
    path = splits(classes="体育\n娱乐\n科技\n\n \n\n", train="012", val="0", test="1")
    news = load(path)
    assert news.labels.names == NAMES
    assert news.notes == []


def test_class_names_without_rows_are_noted(splits, load):
    names = [f"类{number:02}" for number in range(14)]
    used = [str(number) for number in range(10)]
    path = splits(classes=names, train=used, val=used, test=used)
    news = load(path)
    assert len(news.labels) == 14
    (note,) = news.notes
    assert "14 class names, but rows of 10" in note
    assert all(name in note for name in names[10:])
    assert not any(name in note for name in names[:10])


def test_names_given_by_the_user_stand_for_the_ids(splits, load):
    path = splits(classes=["a", "b", "c"], train="012", val="10", test="2")
    news = load(path, class_names=NAMES)
    assert news.labels.names == NAMES
    assert indices(news, "val") == [1, 0]


def test_names_given_by_the_user_decide_the_order(splits, load):
    names = ["科技", "体育", "娱乐"]
    path = splits(classes=NAMES, train=NAMES, val=["科技", "娱乐"], test=NAMES)
    news = load(path, class_names=names)
    assert news.labels.names == names
    assert indices(news, "val") == [0, 2]


def test_a_label_seen_once_is_refused_where_the_names_come_from_the_data(splits, load):
    rows = [*rows_of([*NAMES, *NAMES]), ("新机", "发布")]
    path = splits(separator=" ", train=rows, val=NAMES, test=NAMES)
    with pytest.raises(DataError, match=r"train\.txt:7: expected a label that occurs") as caught:
        load(path)
    assert "found '发布' once" in str(caught.value)
    assert "class.txt or data.class_names" in str(caught.value)


def test_a_label_seen_once_is_fine_where_it_is_listed(splits, load):
    path = splits(classes=NAMES, train=["体育", "体育", "娱乐", "科技"], val=NAMES)
    assert load(path).labels.names == NAMES


# --- with a checkpoint -------------------------------------------------------------------------


def test_ids_are_mapped_to_the_order_of_the_checkpoint(splits, load):
    path = splits(classes=NAMES, train="012", val="01", test="210")
    news = load(path, trained=TRAINED)
    assert news.labels.names == TRAINED.class_names
    assert indices(news, "test") == [0, 2, 1]
    assert indices(news, "val") == [1, 2]


@pytest.mark.parametrize("classes", [NAMES, None], ids=["class.txt", "data"])
def test_names_are_mapped_to_the_order_of_the_checkpoint(splits, classes, load):
    path = splits(classes=classes, train=NAMES * 2, val=NAMES, test=NAMES)
    news = load(path, trained=TRAINED)
    assert news.labels.names == TRAINED.class_names
    assert indices(news, "test") == [1, 2, 0]


def test_ids_without_class_file_are_those_of_the_checkpoint(splits, load):
    news = load(splits(val="012", test="20"), trained=TRAINED)
    assert indices(news, "test") == [2, 0]


def test_some_classes_of_the_checkpoint_are_enough(splits, load):
    path = splits(classes=["娱乐", "科技"], test="0110")
    news = load(path, trained=TRAINED)
    assert len(news.labels) == 3
    assert indices(news, "test") == [2, 0, 0, 2]


@pytest.mark.parametrize("labels", ["ids", "names", "names from the data"])
def test_other_classes_than_those_of_the_checkpoint_are_refused_with_both_lists(
    splits, labels, load
):
    names = ["体育", "娱乐", "财经", "股票"]
    rows = [str(index) for index in range(4)] if labels == "ids" else names
    classes = None if labels == "names from the data" else names
    path = splits(classes=classes, train=rows * 2, val=rows, test=rows)
    with pytest.raises(CheckpointError, match="ckpt_path") as caught:
        load(path, trained=TRAINED)
    assert all(name in str(caught.value) for name in names)
    assert "科技, 体育, 娱乐" in str(caught.value)


def test_an_odd_label_in_data_for_a_checkpoint_is_not_blamed_on_train(splits, load):
    path = splits(test=[*NAMES, *NAMES, "发布"])
    with pytest.raises((DataError, CheckpointError), match="发布") as caught:
        load(path, trained=TRAINED)
    assert "come from train" not in str(caught.value)


def test_labels_that_training_left_out_are_no_other_classes(splits, load):
    path = splits(train=[*NAMES, *NAMES, "军事"], val=[*NAMES, "军事"], test=NAMES)
    first = load(path, on_bad_row="skip")
    trained = Trained(first.labels.names, first.fingerprint)
    again = load(path, on_bad_row="skip", trained=trained)
    assert again.labels.names == first.labels.names == NAMES
    assert list(map(str, again.dropped)) != []
    assert {s: len(r) for s, r in again.records.items()} == {"train": 6, "val": 3, "test": 3}


def test_other_data_needs_no_train_file(splits, load):
    news = load(splits(test=NAMES), trained=TRAINED)
    assert indices(news, "test") == [1, 2, 0]


# --- class files with ids ---------------------------------------------------------------------


@pytest.mark.parametrize("labels", ["ids", "names", "English names"])
def test_labels_of_any_column_of_the_class_file_are_understood(splits, load, labels):
    rows = {"ids": "012", "names": NAMES, "English names": ["Sports", "Stars", "Tech"]}[labels]
    classes = "0 体育 Sports\n1 娱乐 Stars\n2 科技 Tech\n"
    news = load(splits(classes=classes, train=[*rows] * 2, val=rows, test=rows))
    assert news.labels.names == NAMES
    assert indices(news, "val") == [0, 1, 2]
    assert news.notes == []


def test_ids_that_do_not_count_from_zero_are_those_of_the_class_file(splits, write, load):
    path = splits(train=["103", "100"] * 3, val=["100"], test=["103"])
    write(
        "news/labels.json",
        '{"label": "100", "label_desc": "体育"}\n{"label": "103", "label_desc": "娱乐"}\n',
    )
    news = load(path)
    assert news.labels.names == ["体育", "娱乐"]
    assert indices(news, "train") == [1, 0] * 3


def test_ids_without_class_file_need_not_count_from_zero(splits, load):
    news = load(splits(train=["103", "100", "99"] * 2, val=["100"], test=["103"]))
    assert news.labels.names == ["99", "100", "103"]
