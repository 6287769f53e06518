from pathlib import Path

import pytest

from bert_lightning.data.sources import find_sources, split_of
from bert_lightning.errors import DataError


@pytest.fixture
def touch(write):
    """Write files of one row."""

    def touch(*names):
        for name in names:
            write(name, "新片 娱乐\n")

    return touch


def _facts(path, needs_train=True):
    found = find_sources(path, needs_train)
    return {source.split: [file.name for file in source.paths] for source in found}


@pytest.mark.parametrize("suffix", [".txt", ".tsv", ".csv", ".json", ".jsonl", ".parquet"])
@pytest.mark.parametrize("val", ["val", "valid", "validation", "dev", "Dev"])
def test_each_split_is_found_by_its_name(tmp_path, touch, val, suffix):
    touch(f"train{suffix}", f"{val}{suffix}", f"test{suffix}", "class.txt", "notes.md")
    assert _facts(tmp_path) == {
        "train": [f"train{suffix}"],
        "val": [f"{val}{suffix}"],
        "test": [f"test{suffix}"],
    }
    kind = "parquet" if suffix == ".parquet" else "text"
    assert {source.kind for source in find_sources(tmp_path)} == {kind}


@pytest.mark.parametrize("name", ["Train.txt", "TRAIN.TXT"])
def test_capitals_in_names_do_not_matter(tmp_path, touch, name):
    touch(name, "test.txt")
    assert _facts(tmp_path)["train"] == [name]


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("cnews.train", "train"),
        ("thucnews_train_1w", "train"),
        ("training", "train"),
        ("dev_0", "val"),
        ("cnews.val", "val"),
        ("toutiao-test", "test"),
        ("test_cla_utf8", "test"),
        ("latest", None),
        ("trains", None),
        ("data", None),
    ],
)
def test_a_part_of_a_name_tells_the_split(name, split):
    assert split_of(name) == split


def test_files_that_are_named_exactly_go_before_others(tmp_path, touch):
    touch("train.txt", "train_small.txt", "test.txt", "old_test.txt")
    assert _facts(tmp_path) == {"train": ["train.txt"], "test": ["test.txt"]}


def test_two_files_for_one_split_are_refused_by_name(tmp_path, touch):
    touch("train.txt", "dev.txt", "val.txt")
    with pytest.raises(DataError, match=r"one file for val – found dev\.txt, val\.txt") as caught:
        find_sources(tmp_path)
    assert "name it exactly train, val or test" in str(caught.value)


def test_two_files_for_two_splits_are_told_at_once(tmp_path, touch):
    touch("train.txt", "train.tsv", "dev.txt", "val.txt")
    with pytest.raises(DataError) as caught:
        find_sources(tmp_path)
    assert len(caught.value.problems) == 2


def test_parts_of_parquet_are_one_split_in_their_order(tmp_path, touch):
    names = [f"train-{number:05}-of-00003.parquet" for number in range(3)]
    touch(*names[::-1], "test-00000-of-00001.parquet")
    assert _facts(tmp_path) == {"train": names, "test": ["test-00000-of-00001.parquet"]}


@pytest.mark.parametrize(
    ("needs_train", "splits"), [(True, ["train"]), (False, ["val", "test"])], ids=["fit", "test"]
)
@pytest.mark.parametrize("as_folder", [True, False], ids=["folder", "file"])
@pytest.mark.parametrize("name", ["titles.txt", "news.parquet"])
def test_a_lone_file_is_all_the_data(tmp_path, touch, needs_train, splits, as_folder, name):
    touch(name, "class.txt", "._titles.txt")
    path = tmp_path if as_folder else tmp_path / name
    assert _facts(path, needs_train) == {split: [name] for split in splits}


def test_train_alone_is_enough_to_train(tmp_path, touch):
    touch("train.txt", "readme.txt")
    assert _facts(tmp_path) == {"train": ["train.txt"]}


def test_test_alone_is_enough_to_evaluate(tmp_path, touch):
    touch("test.txt", "readme.txt")
    assert _facts(tmp_path, needs_train=False) == {"test": ["test.txt"]}


def test_hidden_files_are_none_of_the_data(tmp_path, touch):
    touch("train.txt", "._train.txt", ".train.txt", "test.txt", "._test.txt")
    assert _facts(tmp_path) == {"train": ["train.txt"], "test": ["test.txt"]}


@pytest.mark.parametrize(
    ("names", "found"),
    [
        pytest.param([], "found an empty folder", id="empty"),
        pytest.param(["a.txt", "b.txt"], r"found a\.txt, b\.txt", id="two others"),
        pytest.param(["val.txt", "test.txt"], r"found test\.txt, val\.txt", id="no train"),
        pytest.param(["train.xlsx"], r"found train\.xlsx", id="suffix"),
    ],
)
def test_a_folder_without_train_file_is_refused_with_its_content(tmp_path, touch, names, found):
    touch(*names)
    with pytest.raises(DataError, match=found) as caught:
        find_sources(tmp_path)
    assert f"{tmp_path}: expected train.txt" in str(caught.value)
    assert "name the files train.txt, val.txt (or dev.txt) and test.txt" in str(caught.value)


def test_what_is_wrong_with_files_that_are_no_data_is_told(tmp_path, write):
    write("train.zip", b"PK\x03\x04")
    with pytest.raises(DataError, match=r"train\.zip \(a zip archive.*: unpack it"):
        find_sources(tmp_path)


def test_a_folder_of_many_files_is_told_in_one_line(tmp_path, touch):
    touch(*(f"{number:02}.md" for number in range(50)))
    with pytest.raises(DataError, match="and 30 more"):
        find_sources(tmp_path)


def test_a_missing_folder_is_refused_with_its_full_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"data\.path: expected a folder or a file") as caught:
        find_sources(Path("nwes"))
    assert str(tmp_path / "nwes") in str(caught.value)


# --- trees and datasets -----------------------------------------------------------------------


def test_folders_of_classes_in_folders_of_splits_are_trees(tmp_path, touch):
    touch("train/体育/1.txt", "train/娱乐/1.txt", "dev/体育/1.txt", "test/体育/1.txt", "readme.md")
    found = find_sources(tmp_path)
    assert [(s.split, s.kind, s.paths) for s in found] == [
        ("train", "tree", (tmp_path / "train",)),
        ("val", "tree", (tmp_path / "dev",)),
        ("test", "tree", (tmp_path / "test",)),
    ]


@pytest.mark.parametrize(
    ("needs_train", "splits"), [(True, ["train"]), (False, ["val", "test"])], ids=["fit", "test"]
)
def test_folders_of_classes_alone_are_a_tree_to_be_split(tmp_path, touch, needs_train, splits):
    touch("体育/1.txt", "娱乐/1.txt", ".git/config")
    found = find_sources(tmp_path, needs_train)
    assert [(s.split, s.kind, s.paths) for s in found] == [
        (split, "tree", (tmp_path,)) for split in splits
    ]


def test_files_of_splits_go_before_folders(tmp_path, touch):
    touch("train.txt", "test.txt", "train/体育/1.txt", "train/娱乐/1.txt")
    assert {source.kind for source in find_sources(tmp_path)} == {"text"}


def test_one_folder_is_no_tree(tmp_path, touch):
    touch("体育/1.txt")
    with pytest.raises(DataError, match=r"expected train\.txt"):
        find_sources(tmp_path)


@pytest.mark.parametrize("name", ["dataset_dict.json", "dataset_info.json"])
def test_a_folder_that_datasets_saved_is_told(tmp_path, touch, name):
    touch(name, "data-00000-of-00001.arrow")
    (source,) = find_sources(tmp_path)
    assert (source.kind, source.paths) == ("dataset", ())


# --- nothing is left out unseen ---------------------------------------------------------------


def test_parts_of_text_are_refused_since_one_alone_would_be_read(tmp_path, touch):
    touch("train-00000-of-00002.jsonl", "train-00001-of-00002.jsonl")
    with pytest.raises(DataError, match="one file for train – found train-00000-of-00002"):
        find_sources(tmp_path)


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(["00000-of-00003", "00002-of-00003"], id="one missing"),
        pytest.param(["00001-of-00002"], id="first missing"),
        pytest.param(["00000-of-00001", "00000-of-00002", "00001-of-00002"], id="two sets"),
    ],
)
def test_parts_of_parquet_that_are_not_all_there_are_refused(tmp_path, touch, names):
    touch(*(f"train-{name}.parquet" for name in names))
    with pytest.raises(DataError, match="expected all parts of train, and no others – found"):
        find_sources(tmp_path)


def test_two_folders_for_one_split_are_refused_by_name(tmp_path, touch):
    touch("train/体育/1.txt", "dev/体育/1.txt", "valid/体育/1.txt")
    with pytest.raises(DataError, match="expected one folder for val – found dev, valid") as got:
        find_sources(tmp_path)
    assert "name it exactly train, val or test" in str(got.value)


def test_a_folder_that_is_named_exactly_goes_before_others(tmp_path, touch):
    touch("train/体育/1.txt", "train_old/体育/1.txt")
    assert _facts(tmp_path) == {"train": ["train"]}
