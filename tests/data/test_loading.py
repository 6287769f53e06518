import json
import random

import pytest

from bert_lightning.data.labels import Trained
from bert_lightning.data.loading import BUILTIN
from bert_lightning.demo.news import CORPUS_CLASSES
from bert_lightning.errors import CheckpointError, DataError

NAMES = ["体育", "娱乐", "科技"]


def rows_of(labels, start=0):
    return [(f"第{number}条 标题", label) for number, label in enumerate(labels, start)]


def indices(news, split):
    return [news.labels.index(record.label) for record in news.records[split]]


# --- faults ------------------------------------------------------------------------------------


@pytest.mark.parametrize("split", ["train", "val", "test"])
@pytest.mark.parametrize("label", ["3", "-1", "体育"])
def test_an_id_outside_the_class_file_is_refused_with_its_place(splits, split, label, load):
    parts = {"train": [*"012012"], "val": [*"012"], "test": [*"012"]}
    parts[split] = [*parts[split], label]
    path = splits(classes=NAMES, **parts)
    with pytest.raises(DataError, match="expected a class id from 0 to 2") as caught:
        load(path)
    (problem,) = caught.value.problems
    assert problem.startswith(f"{split}.txt:{len(parts[split])}: ")
    assert problem.endswith(f"found {label!r}")
    assert "class.txt" in str(caught.value)


@pytest.mark.parametrize("split", ["val", "test"])
@pytest.mark.parametrize("classes", [NAMES, None], ids=["class.txt", "data"])
def test_an_unknown_label_outside_train_is_refused_with_its_place(splits, split, classes, load):
    parts = {"train": [*NAMES, *NAMES], "val": NAMES, "test": NAMES}
    parts[split] = ["体育", "财经", "财经"]
    path = splits(classes=classes, **parts)
    with pytest.raises(DataError, match="expected one of 体育, 娱乐, 科技") as caught:
        load(path)
    places = [problem.split(": ")[0] for problem in caught.value.problems]
    assert places == [f"{split}.txt:2", f"{split}.txt:3"]
    assert f"come from {'class.txt' if classes else 'train'}" in str(caught.value)


def test_faults_of_all_files_are_told_at_once(splits, load):
    path = splits(
        train=[*NAMES, *NAMES, ("", "体育")],
        val=["体育", ("决赛", "")],
        test=NAMES,
    )
    with pytest.raises(DataError) as caught:
        load(path)
    places = [problem.split(": ")[0] for problem in caught.value.problems]
    assert places == ["train.txt:7", "val.txt:2"]


def test_a_thousand_faults_are_a_screen_and_a_count(splits, load):
    path = splits(classes=NAMES, train=[*"012", *["9"] * 1_500, *"012" * 500])
    with pytest.raises(DataError, match="and 1,480 more") as caught:
        load(path)
    assert len(str(caught.value).splitlines()) <= 23


def test_data_of_one_class_is_refused(splits, load):
    path = splits(train=["体育"] * 4, val=["体育"], test=["体育"])
    with pytest.raises(DataError, match="two or more"):
        load(path)


@pytest.mark.parametrize("path", ["nwes", "nwes/train.txt"])
def test_a_missing_path_is_refused(tmp_path, path, load):
    with pytest.raises(DataError, match=r"data\.path: expected a folder or a file"):
        load(str(tmp_path / path))


# --- fingerprint -------------------------------------------------------------------------------


def test_the_fingerprint_does_not_depend_on_the_place(splits, load):
    parts = {"classes": NAMES, "train": "012012", "val": "012", "test": "012"}
    first = load(splits(folder="a", **parts))
    second = load(splits(folder="b", **parts))
    assert first.fingerprint == second.fingerprint


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"train": "012021"}, id="train"),
        pytest.param({"val": "021"}, id="val"),
        pytest.param({"test": "0121"}, id="test"),
        pytest.param({"classes": ["娱乐", "体育", "科技"]}, id="class.txt"),
    ],
)
def test_the_fingerprint_changes_with_each_file(splits, change, load):
    parts = {"classes": NAMES, "train": "012012", "val": "012", "test": "012"}
    first = load(splits(folder="a", **parts))
    second = load(splits(folder="b", **{**parts, **change}))
    assert first.fingerprint != second.fingerprint


def test_other_files_in_the_folder_do_not_matter(splits, tmp_path, load):
    path = splits(train=NAMES * 2, val=NAMES, test=NAMES)
    before = load(path).fingerprint
    (tmp_path / "notes.md").write_text("about the data")
    assert load(path).fingerprint == before


# --- with a checkpoint -----------------------------------------------------------------------

TRAINED = Trained(["科技", "体育", "娱乐"], "another", must_be_same=False)
SIZES = {"体育": 100, "娱乐": 50, "科技": 30}


def _lone_file(splits, sizes=SIZES):
    labels = [label for label, size in sizes.items() for _ in range(size)]
    random.Random(0).shuffle(labels)
    return splits(titles=labels)


def _lines(news, split):
    return [record.line for record in news.records[split]]


def test_the_data_of_the_run_itself_is_taken_if_it_is_unchanged(splits, load):
    path = _lone_file(splits)
    first = load(path, seed=3)
    again = load(path, seed=3, trained=Trained(first.labels.names, first.fingerprint, seed=3))
    assert again.fingerprint == first.fingerprint
    assert {s: list(rows) for s, rows in again.records.items()} == {
        s: list(rows) for s, rows in first.records.items()
    }


def test_changed_data_of_the_run_itself_is_refused(splits, load):
    path = _lone_file(splits)
    first = load(path)
    with (path / "titles.txt").open("a", encoding="utf-8") as file:
        file.write("新片\t娱乐\n")
    with pytest.raises(CheckpointError, match=r"data\.path.* has changed") as caught:
        load(path, trained=Trained(first.labels.names, first.fingerprint))
    assert "give --data.path" in str(caught.value)


def test_a_lone_file_of_other_data_is_evaluated_whole(splits, load):
    news = load(_lone_file(splits), trained=TRAINED)
    assert set(news.records) == {"val", "test"}
    assert _lines(news, "val") == _lines(news, "test") == list(range(1, 181))


# --- the built-in corpus -----------------------------------------------------------------------


def test_the_built_in_corpus_needs_no_file(load):
    news = load(BUILTIN)
    assert news.labels.names == list(CORPUS_CLASSES)
    assert {split: len(records) for split, records in news.records.items()} == {
        "train": 16_000,
        "val": 2_000,
        "test": 2_000,
    }


def test_the_classes_of_the_built_in_corpus_can_be_put_in_another_order(load):
    names = list(CORPUS_CLASSES)[::-1]
    news = load(BUILTIN, class_names=names)
    assert news.labels.names == names


def test_other_names_for_the_built_in_corpus_are_refused(load):
    with pytest.raises(DataError, match="built-in corpus has the classes"):
        load(BUILTIN, class_names=NAMES)


def test_the_built_in_corpus_is_its_own_fingerprint(load):
    fingerprint = load(BUILTIN).fingerprint
    news = load(BUILTIN, trained=Trained(list(CORPUS_CLASSES), fingerprint))
    assert news.fingerprint == fingerprint
    with pytest.raises(CheckpointError, match="has changed"):
        load(BUILTIN, trained=Trained(list(CORPUS_CLASSES), "built-in corpus 0"))


def test_the_built_in_corpus_is_mapped_to_the_order_of_the_checkpoint(load):
    names = list(CORPUS_CLASSES)[::-1]
    news = load(BUILTIN, trained=Trained(names, "another", must_be_same=False))
    assert news.labels.names == names
    assert news.labels.index(CORPUS_CLASSES[0]) == len(names) - 1


def test_the_built_in_corpus_is_refused_by_a_checkpoint_of_other_classes(load):
    with pytest.raises(CheckpointError, match="财经"):
        load(BUILTIN, trained=Trained(["财经", "股票"], "another", must_be_same=False))


# --- rows that are left out -------------------------------------------------------------------


def test_bad_rows_are_refused_with_the_way_out(splits, load):
    path = splits(train=[*NAMES * 2, ("甲", "")], val=NAMES)
    with pytest.raises(
        DataError, match=r"train\.txt:7: expected a title, a TAB and a label"
    ) as caught:
        load(path)
    assert "data.on_bad_row: skip" in str(caught.value)


def test_exactly_the_bad_rows_are_skipped_and_listed(splits, write, load):
    rows = [
        ("甲", "体育"),
        ("", "体育"),
        ("乙", "财经"),
        ("丙", "娱乐"),
        ("丁", ""),
        ("戊", "科技"),
    ]
    path = splits(classes=NAMES, train=rows, val=[("己", "体育"), ("庚", "9")], test=NAMES)
    with (path / "train.txt").open("ab") as file:
        file.write("\n没有\n\xff\t体育\n".encode().replace(b"\xc3\xbf", b"\xff"))
    news = load(path, on_bad_row="skip")
    assert [record.text for record in news.records["train"]] == ["甲", "丙", "戊"]
    assert [record.text for record in news.records["val"]] == ["己"]
    assert len(news.records["test"]) == 3
    assert sorted(fault.place for fault in news.dropped) == [
        "train.txt:2",
        "train.txt:3",
        "train.txt:5",
        "train.txt:8",
        "train.txt:9",
        "val.txt:2",
    ]
    assert "6 bad rows left out (data.on_bad_row: skip)" in news.notes
    assert "train.txt: blank lines skipped: 1" in news.notes


def test_data_without_bad_rows_is_the_same_under_skip(splits, load):
    path = splits(train=NAMES * 2, val=NAMES, test=NAMES)
    strict, lenient = load(path), load(path, on_bad_row="skip")
    assert list(strict.records["train"]) == list(lenient.records["train"])
    assert (lenient.dropped, lenient.notes) == ([], [])


def test_a_split_of_bad_rows_alone_is_refused_under_skip(splits, load):
    path = splits(classes=NAMES, train=NAMES * 2, val=["财经", "9"], test=NAMES)
    with pytest.raises(DataError, match="expected rows of val – found none") as caught:
        load(path, on_bad_row="skip")
    assert "val.txt:2" in str(caught.value)


def test_a_label_seen_once_is_left_out_under_skip(splits, load):
    rows = [*rows_of([*NAMES, *NAMES]), ("新机", "发布")]
    news = load(splits(train=rows, val=NAMES), on_bad_row="skip")
    assert news.labels.names == sorted(NAMES)
    assert [fault.place for fault in news.dropped] == ["train.txt:7"]


def test_a_test_split_without_labels_is_left_out_with_a_note(write, load, tmp_path):
    for split in ("train", "dev"):
        rows = [{"sentence": f"{split}{n}", "label": NAMES[n % 3]} for n in range(6)]
        write(f"news/{split}.json", "\n".join(json.dumps(row) for row in rows))
    write("news/test.json", '{"id": 1, "sentence": "新片"}\n')
    news = load(tmp_path / "news")
    assert set(news.records) == {"train", "val"}
    assert news.notes == ["test.json holds no labels and is left out: predict takes it"]


@pytest.mark.parametrize("names", [["train"], ["train", "test"]], ids=["alone", "beside test"])
def test_a_train_split_without_labels_is_refused(write, load, tmp_path, names):
    for name in names:
        label = ',"label":1' if name == "test" else ""
        write(f"news/{name}.json", f'{{"sentence":"新片"{label}}}\n' * 4)
    with pytest.raises(DataError, match=r"train\.json: expected labels – found") as caught:
        load(tmp_path / "news")
    assert "data.label_column" in str(caught.value)


# --- the same titles in two splits ------------------------------------------------------------


@pytest.fixture
def leaking(splits):
    """A folder where train holds titles of val and test, and val one of test."""
    train = [
        ("甲", "体育"),
        ("乙", "娱乐"),
        ("图文-丙（图）", "体育"),
        ("丁", "娱乐"),
        ("丁！", "体育"),
    ]
    return splits(
        train=train, val=[("丙", "体育"), ("戊", "娱乐")], test=[("丁", "娱乐"), ("戊", "体育")]
    )


def test_leaked_rows_are_kept_unless_told(leaking, load):
    news = load(leaking)
    assert {split: len(rows) for split, rows in news.records.items()} == {
        "train": 5,
        "val": 2,
        "test": 2,
    }


def test_leaked_rows_are_left_out_and_listed(leaking, load):
    news = load(leaking, drop_leaked=True)
    assert [record.text for record in news.records["train"]] == ["甲", "乙"]
    assert [record.text for record in news.records["val"]] == ["丙"]
    assert [record.text for record in news.records["test"]] == ["丁", "戊"]
    assert [fault.place for fault in news.dropped] == [
        "train.txt:3",
        "train.txt:4",
        "train.txt:5",
        "val.txt:2",
    ]
    assert any(note.startswith("3 rows of train left out") for note in news.notes)
    assert any("data.drop_leaked" in note for note in news.notes)


def test_nothing_is_left_out_where_nothing_leaks(splits, load):
    path = splits(train=NAMES * 2, val=NAMES, test=NAMES)
    news = load(path, drop_leaked=True)
    assert (news.dropped, news.notes) == ([], [])


def test_a_split_whose_titles_all_leak_is_refused_with_the_way_out(splits, load):
    rows = [("甲", "体育"), ("乙", "娱乐")]
    with pytest.raises(DataError, match="expected rows of val that later splits lack") as caught:
        load(
            splits(train=[*rows, ("丙", "体育"), ("丁", "娱乐")], val=rows, test=rows),
            drop_leaked=True,
        )
    assert "data.drop_leaked" in str(caught.value)


def test_nothing_leaks_from_a_lone_file_that_is_only_evaluated(splits, load):
    news = load(_lone_file(splits), trained=TRAINED, drop_leaked=True)
    assert len(news.records["val"]) == len(news.records["test"]) == 180


@pytest.mark.parametrize("name", ["class.txt", "label_data.txt"])
def test_a_file_of_data_that_is_called_like_a_class_file_is_data(write, load, name):
    path = write(f"news/{name}", "".join(f"第{n}条\t{'体娱'[n % 2]}育\n" for n in range(40)))
    assert load(path).labels.names == ["体育", "娱育"]
