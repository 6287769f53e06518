import json
import os
import shutil

import datasets
import pyarrow as pa
import pytest
from pyarrow import parquet

from bert_lightning.data import reading
from bert_lightning.data.columns import Columns
from bert_lightning.data.reading import TOLD_FROM_DATA, ReadingSettings, read_data, stored_corpus
from bert_lightning.data.records import Fault, Record
from bert_lightning.errors import DataError

ROWS = [("雪豹队逆转", "体育"), ("新片上映", "娱乐"), ("决赛开打", "体育"), ("影后复出", "娱乐")]
TRAIN = "".join(f"{text}\t{label}\n" for text, label in ROWS)


@pytest.fixture
def get(storage):
    """Read a data path with the storage of the test."""

    def get(path, needs_train=True, **settings):
        return read_data(str(path), storage, ReadingSettings(**settings), needs_train)

    return get


@pytest.fixture
def calls(monkeypatch):
    """The names of the text files that are read, once each time they are."""
    names = []
    read = reading.read_text_file

    def counted(path, *args):
        names.append(path.name)
        return read(path, *args)

    monkeypatch.setattr(reading, "read_text_file", counted)
    return names


def _pairs(found, split="train"):
    return [(record.text, record.label) for record in found.records[split]]


def test_what_was_taken_is_said_of_each_file(write, tmp_path, get):
    write("news/train.txt", TRAIN + "\n\n", "gb18030")
    write("news/test.txt", "体育\t夺冠\n")
    found = get(tmp_path / "news")
    train, test = found.files
    assert _pairs(found) == ROWS
    assert (train.split, train.source, train.encoding) == ("train", "train.txt", "gb18030")
    assert (train.rows, train.blank_lines, train.form, train.is_labelled) == (4, 2, "lines", True)
    assert train.layout == (
        "a title, a TAB and a label (2 different values at the end of the first 4 lines,"
        " 4 at the beginning)"
    )
    assert test.encoding == "utf-8"
    assert found.faults == []
    assert found.path == str(tmp_path / "news")


def test_the_labels_of_train_tell_those_of_a_short_file(write, tmp_path, get):
    write("news/train.txt", "".join(f"{label}\t{text}\n" for text, label in ROWS))
    write("news/val.txt", "体育\t新片\n")
    write("news/test.txt", "决赛\t娱乐\n")
    found = get(tmp_path / "news")
    assert _pairs(found, "val") == [("新片", "体育")]
    assert _pairs(found, "test") == [("决赛", "娱乐")]


@pytest.mark.parametrize("place", ["class file", "user"])
def test_known_classes_tell_the_labels(write, tmp_path, get, place):
    write("news/train.txt", "体育\t甲\n娱乐\t乙\n科技\t丙\n")
    if place == "class file":
        write("news/class.txt", "体育\n娱乐\n科技\n")
        found = get(tmp_path / "news")
        assert found.class_list.names == ["体育", "娱乐", "科技"]
    else:
        found = get(tmp_path / "news", class_names=("体育", "娱乐", "科技"))
        assert found.class_list is None
    assert _pairs(found) == [("甲", "体育"), ("乙", "娱乐"), ("丙", "科技")]


def test_faults_of_all_files_are_gathered_and_not_raised(write, tmp_path, get):
    write("news/train.txt", TRAIN + "甲\n")
    write("news/val.txt", TRAIN.encode() + b"\xff\t0\n")
    assert get(tmp_path / "news").faults == [
        Fault("train.txt", 5, "a title, a TAB and a label", "'甲'"),
        Fault("val.txt", 5, "utf-8 text", "byte 0xff at position 1 of the line"),
    ]


def test_a_lone_file_is_train_or_both_others(write, get):
    path = write("titles.txt", TRAIN)
    assert set(get(path).records) == {"train"}
    found = get(path, needs_train=False)
    assert list(found.records["val"]) == list(found.records["test"])


def test_the_layout_and_encoding_that_the_user_names_are_taken(write, get):
    path = write("titles.txt", "電影\t上映\n" * 3, "big5")
    found = get(path, encoding="big5", layout="label_tab_text")
    assert _pairs(found) == [("上映", "電影")] * 3
    assert found.files[0].encoding == "big5"
    assert "as data.layout says" in found.files[0].layout


def test_the_columns_that_the_user_names_are_taken(write, get):
    path = write("titles.csv", "kind,title,body\n体育,甲,乙\n")
    assert _pairs(get(path, columns=Columns("body", "kind"))) == [("乙", "体育")]


def test_a_file_that_is_no_data_is_refused_by_its_path(write, tmp_path, get):
    path = write("news/train.txt", b"version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(DataError, match="a Git LFS pointer") as caught:
        get(tmp_path / "news")
    assert str(path) in str(caught.value)


def test_an_appledouble_beside_the_data_is_none_of_it(write, tmp_path, get):
    write("news/train.txt", TRAIN)
    write("news/._train.txt", b"\x00\x05\x16\x07")
    write("news/._class.txt", b"\x00\x05\x16\x07")
    assert _pairs(get(tmp_path / "news")) == ROWS


# --- trees, Parquet, datasets -----------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["utf-8", "gb18030"])
def test_a_tree_of_splits_and_classes_is_read(write, tmp_path, get, encoding):
    for split in ("train", "val"):
        for number, (text, label) in enumerate(ROWS):
            write(f"news/{split}/{label}/{number}.txt", text, encoding)
    write("news/train/.DS_Store", b"\x00")
    write("news/train/体育/9.txt", b"\xff")
    found = get(tmp_path / "news")
    assert sorted(_pairs(found)) == sorted(ROWS)
    assert sorted(_pairs(found, "val")) == sorted(ROWS)
    assert found.files[0].layout == "5 files of one text in folders of their class"
    assert (found.files[0].encoding, found.files[0].form) == (encoding, "tree")
    assert [fault.source for fault in found.faults] == ["train/体育/9.txt"]


def test_a_tree_of_classes_is_read(write, tmp_path, get):
    for number, (text, label) in enumerate(ROWS):
        write(f"news/{label}/{number}.txt", text)
    assert sorted(_pairs(get(tmp_path / "news"))) == sorted(ROWS)


def test_parts_of_parquet_are_read(write, tmp_path, get):
    write("news/train.md", "")
    for number in range(2):
        text, label = zip(*ROWS[2 * number : 2 * number + 2], strict=True)
        table = pa.table({"text": text, "label": label})
        parquet.write_table(table, tmp_path / f"news/train-{number:05}-of-00002.parquet")
    found = get(tmp_path / "news")
    assert _pairs(found) == ROWS
    assert (found.files[0].rows, found.files[0].encoding) == (4, "")


@pytest.fixture
def saved(tmp_path):
    """Save a dataset with ClassLabel: `saved(name, train=[ids], …) -> folder`."""

    def saved(folder, names=("体育", "娱乐"), **parts):
        features = datasets.Features(
            {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=list(names))}
        )
        datasets.DatasetDict(
            {
                name: datasets.Dataset.from_dict(
                    {"text": [f"新片{n}" for n in range(len(ids))], "label": ids}, features
                )
                for name, ids in parts.items()
            }
        ).save_to_disk(tmp_path / folder)
        return tmp_path / folder

    return saved


def test_a_saved_dataset_is_read_with_the_names_of_its_classes(saved, get):
    found = get(saved("news", train=[0, 1, 0], validation=[1, 0], test=[1, -1], extra=[0]))
    assert _pairs(found) == [("新片0", "体育"), ("新片1", "娱乐"), ("新片2", "体育")]
    assert _pairs(found, "val") == [("新片0", "娱乐"), ("新片1", "体育")]
    assert _pairs(found, "test") == [("新片0", "娱乐")]
    assert [fault.place for fault in found.faults] == ["test:2"]


def test_a_dataset_of_the_hub_is_read_by_its_id(monkeypatch, get):
    dataset = datasets.Dataset.from_dict({"text": ["甲", "乙"], "label": ["体育", "娱乐"]})
    monkeypatch.setattr(datasets, "load_dataset", lambda *_: datasets.DatasetDict(train=dataset))
    found = get("hf://owner/news")
    assert _pairs(found) == [("甲", "体育"), ("乙", "娱乐")]
    assert found.path == "hf://owner/news"


# --- storage ----------------------------------------------------------------------------------


def test_a_file_is_read_once(write, tmp_path, get, calls):
    write("news/train.txt", TRAIN + "甲\n\n")
    write("news/val.txt", TRAIN)
    first = get(tmp_path / "news")
    assert calls == ["train.txt", "val.txt"]
    second = get(tmp_path / "news")
    assert calls == ["train.txt", "val.txt"]
    assert second.entry == first.entry
    assert (second.files, second.faults) == (first.files, first.faults)
    assert list(second.records["train"]) == list(first.records["train"])


def test_the_same_files_elsewhere_are_the_same_entry(write, tmp_path, get, calls):
    for place in ("a", "b"):
        write(f"{place}/train.txt", TRAIN)
    first, second = get(tmp_path / "a"), get(tmp_path / "b")
    assert (first.entry, first.fingerprint) == (second.entry, second.fingerprint)
    assert calls == ["train.txt"]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"content": TRAIN.replace("逆", "顺")}, id="a byte"),
        pytest.param({"content": TRAIN.replace("\n", "\r\n")}, id="line ends"),
        pytest.param({"name": "titles2.txt"}, id="name"),
        pytest.param({"layout": "text_blank_label"}, id="layout"),
        pytest.param({"encoding": "gb18030"}, id="encoding"),
        pytest.param({"needs_train": False}, id="splits"),
    ],
)
def test_whatever_changes_the_records_makes_another_entry(write, get, calls, change):
    text = TRAIN.replace("\t", " ")
    first = get(write("titles.txt", text))
    name = change.pop("name", "titles.txt")
    path = write(name, change.pop("content", text).replace("\t", " "))
    second = get(path, **change)
    assert first.entry != second.entry
    assert len(calls) >= 2


def test_an_entry_whose_arrow_file_was_cut_is_made_anew(write, get, storage, calls):
    path = write("titles.txt", TRAIN)
    entry = get(path).entry
    arrow = storage.folder / entry / "train.arrow"
    arrow.write_bytes(arrow.read_bytes()[:-40])
    assert _pairs(get(path)) == ROWS
    assert calls == ["titles.txt", "titles.txt"]


def test_a_file_that_is_refused_half_way_leaves_no_entry(
    write, tmp_path, get, storage, monkeypatch
):
    write("news/train.txt", TRAIN)

    def broken(*_):
        yield Record("甲", "体育", "train.txt", 1)
        raise OSError(5, "Input/output error", "train.txt")

    monkeypatch.setattr(reading, "read_text_file", broken)
    with pytest.raises(OSError, match="Input/output"):
        get(tmp_path / "news")
    assert [file for file in storage.folder.iterdir() if file.is_dir()] == []


def test_a_tree_is_read_once_and_anew_when_a_file_changes(write, tmp_path, get, monkeypatch):
    for number, (text, label) in enumerate(ROWS):
        write(f"news/{label}/{number}.txt", text)
    counted = []
    read = reading.Tree.read
    monkeypatch.setattr(reading.Tree, "read", lambda tree: counted.append(1) or read(tree))
    first, second = get(tmp_path / "news"), get(tmp_path / "news")
    assert len(counted) == 1
    assert first.fingerprint == second.fingerprint
    write("news/体育/0.txt", "云城队逆转")
    third = get(tmp_path / "news")
    assert len(counted) == 2
    assert third.fingerprint != first.fingerprint
    assert ("云城队逆转", "体育") in _pairs(third)


def test_fingerprints_of_trees_and_datasets_do_not_depend_on_the_place(write, tmp_path, get, saved):
    for place in ("a", "b"):
        for number, (text, label) in enumerate(ROWS):
            write(f"{place}/{label}/{number}.txt", text)
    assert get(tmp_path / "a").fingerprint == get(tmp_path / "b").fingerprint
    first = get(saved("c", train=[0, 1, 1])).fingerprint
    shutil.copytree(tmp_path / "c", tmp_path / "d")
    assert get(tmp_path / "d").fingerprint == first


def test_a_changed_dataset_is_read_anew(saved, get):
    first = get(saved("a", train=[0, 1, 1]))
    second = get(saved("b", train=[0, 1, 0]))
    assert first.fingerprint != second.fingerprint
    assert [label for _, label in _pairs(second)] == ["体育", "娱乐", "体育"]


@pytest.mark.parametrize("name", ["class.txt", "class_b.txt"])
def test_the_fingerprint_follows_the_class_files(write, tmp_path, get, name):
    write("news/train.txt", TRAIN)
    write("news/class.txt", "体育\n娱乐\n")
    first = get(tmp_path / "news")
    write(f"news/{name}", "娱乐\n体育\n")
    second = get(tmp_path / "news")
    assert first.fingerprint != second.fingerprint
    assert first.entry == second.entry


def test_what_is_stored_can_be_read_by_people(write, get, storage):
    entry = get(write("titles.txt", TRAIN)).entry
    content = json.loads((storage.folder / entry / "reading.json").read_text(encoding="utf-8"))
    assert content["files"][0]["source"] == "titles.txt"


def test_records_that_the_package_makes_are_kept(storage):
    made = []

    def make():
        made.append(1)
        return [Record("甲", "体育", "corpus", 1)]

    found = [stored_corpus("corpus", version, storage, {"train": make}) for version in "112"]
    assert len(made) == 2
    assert [part.fingerprint for part in found] == ["1", "1", "2"]
    assert list(found[1].records["train"]) == [Record("甲", "体育", "corpus", 1)]


def test_all_is_told_from_the_data_unless_something_is_fixed():
    assert ReadingSettings("auto", "auto", Columns(None, None), ()) == TOLD_FROM_DATA


# --- splits of datasets -----------------------------------------------------------------------


def test_a_saved_dataset_of_no_split_is_all_the_data(saved, get, tmp_path):
    datasets.Dataset.from_dict({"text": ["甲", "乙"], "label": ["0", "1"]}).save_to_disk(
        tmp_path / "one"
    )
    assert set(get(tmp_path / "one").records) == {"train"}
    assert set(get(tmp_path / "one", needs_train=False).records) == {"val", "test"}


@pytest.mark.parametrize("parts", [{"test": [0, 1]}, {"a": [0], "b": [1]}], ids=["test", "none"])
def test_a_dataset_without_train_split_is_refused_with_its_splits(saved, get, parts):
    path = saved("news", **parts)
    with pytest.raises(DataError, match="expected a dataset with a train split – found") as caught:
        get(path)
    assert ", ".join(parts) in str(caught.value)


def test_two_splits_of_one_kind_are_refused_unless_one_is_named_exactly(saved, get):
    with pytest.raises(DataError, match="expected one split for val – found val_a, val_b"):
        get(saved("a", train=[0, 1], val_a=[0], val_b=[1]))
    found = get(saved("b", train=[0, 1, 0], train_small=[0], test=[1]))
    assert (len(found.records["train"]), found.files[0].source) == (3, "train")


def test_the_names_of_the_classes_of_a_dataset_are_part_of_its_content(saved, get):
    first = get(saved("a", train=[0, 1]))
    second = get(saved("b", names=("娱乐", "体育"), train=[0, 1]))
    assert first.entry != second.entry
    assert [label for _, label in _pairs(second)] == ["娱乐", "体育"]


@pytest.mark.parametrize("kind", ["file", "tree"])
def test_names_of_files_that_are_no_utf_8_can_be_stored(tmp_path, get, kind):
    name = os.fsdecode("新闻".encode("gb18030"))
    if kind == "file":
        path = tmp_path / f"{name}.txt"
        path.write_text(TRAIN, encoding="utf-8")
    else:
        path = tmp_path / "news"
        for label in (name, "体育"):
            (path / label).mkdir(parents=True)
            (path / label / "1.txt").write_text("雪豹队", encoding="utf-8")
    found = get(path)
    assert ("新闻.txt" if kind == "file" else "新闻/1.txt") in {
        record.source for record in found.records["train"]
    }
