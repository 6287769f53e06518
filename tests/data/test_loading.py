import random
from collections import Counter

import pytest

from bert_lightning.data.loading import BUILTIN, Trained, load_news
from bert_lightning.demo.news import CORPUS_CLASSES
from bert_lightning.errors import CheckpointError, DataError

NAMES = ["体育", "娱乐", "科技"]


def _rows(labels, start=0):
    return [(f"标题 第{number}条", label) for number, label in enumerate(labels, start)]


def _write(folder, *, classes=None, separator="\t", **splits):
    """Write a data folder; a split is a list of labels or of (title, label)."""
    folder.mkdir(exist_ok=True)
    if classes is not None:
        text = classes if isinstance(classes, str) else "\n".join(classes) + "\n"
        (folder / "class.txt").write_text(text, encoding="utf-8")
    for split, rows in splits.items():
        pairs = [
            row if isinstance(row, tuple) else (f"标题 {split}{number}", row)
            for number, row in enumerate(rows)
        ]
        lines = [f"{title}{separator}{label}\n" for title, label in pairs]
        (folder / f"{split}.txt").write_text("".join(lines), encoding="utf-8")
    return str(folder)


def _indices(news, split):
    return [news.labels.index(record.label) for record in news.records[split]]


# --- class names ------------------------------------------------------------------------------


def test_ids_stand_for_the_lines_of_the_class_file(tmp_path):
    path = _write(tmp_path, classes=NAMES, train="012012", val="01", test="2")
    news = load_news(path)
    assert news.labels.names == NAMES
    assert _indices(news, "train") == [0, 1, 2, 0, 1, 2]
    assert _indices(news, "val") == [0, 1]
    assert _indices(news, "test") == [2]
    assert news.notes == []


def test_names_in_the_class_file_keep_their_order(tmp_path):
    names = ["科技", "体育", "娱乐"]
    path = _write(tmp_path, classes=names, train=[*NAMES, *NAMES], val=NAMES, test=NAMES)
    news = load_news(path)
    assert news.labels.names == names
    assert _indices(news, "val") == [1, 2, 0]


@pytest.mark.parametrize("separator", ["\t", " "], ids=["TAB", "blank"])
def test_names_from_the_data_are_sorted(tmp_path, separator):
    labels = ["科技", "体育", "娱乐", "科技", "体育", "娱乐"]
    path = _write(tmp_path, separator=separator, train=labels, val=["体育"], test=["科技"])
    news = load_news(path)
    assert news.labels.names == sorted(NAMES)
    assert _indices(news, "train") == [sorted(NAMES).index(label) for label in labels]


def test_ids_without_class_file_are_sorted_as_numbers(tmp_path):
    labels = [str(number) for number in range(12)] * 2
    path = _write(tmp_path, train=labels[::-1], val=["10"], test=["2"])
    news = load_news(path)
    assert news.labels.names == [str(number) for number in range(12)]
    assert _indices(news, "val") == [10]


def test_a_blank_tail_of_the_class_file_makes_no_class(tmp_path):
    path = _write(tmp_path, classes="体育\n娱乐\n科技\n\n \n\n", train="012", val="0", test="1")
    news = load_news(path)
    assert news.labels.names == NAMES
    assert news.notes == []


def test_class_names_without_rows_are_noted(tmp_path):
    names = [f"类{number:02}" for number in range(14)]
    used = [str(number) for number in range(10)]
    path = _write(tmp_path, classes=names, train=used, val=used, test=used)
    news = load_news(path)
    assert len(news.labels) == 14
    (note,) = news.notes
    assert "14 class names, but rows of 10" in note
    assert all(name in note for name in names[10:])
    assert not any(name in note for name in names[:10])


def test_names_given_by_the_user_stand_for_the_ids(tmp_path):
    path = _write(tmp_path, classes=["a", "b", "c"], train="012", val="10", test="2")
    news = load_news(path, class_names=NAMES)
    assert news.labels.names == NAMES
    assert _indices(news, "val") == [1, 0]


def test_names_given_by_the_user_decide_the_order(tmp_path):
    names = ["科技", "体育", "娱乐"]
    path = _write(tmp_path, classes=NAMES, train=NAMES, val=["科技", "娱乐"], test=NAMES)
    news = load_news(path, class_names=names)
    assert news.labels.names == names
    assert _indices(news, "val") == [0, 2]


def test_a_label_seen_once_is_refused_where_the_names_come_from_the_data(tmp_path):
    rows = [*_rows([*NAMES, *NAMES]), ("新机", "发布")]
    path = _write(tmp_path, separator=" ", train=rows, val=NAMES, test=NAMES)
    with pytest.raises(DataError, match=r"train\.txt:7: expected a label that occurs") as caught:
        load_news(path)
    assert "found '发布' once" in str(caught.value)
    assert "class.txt or data.class_names" in str(caught.value)


def test_a_label_seen_once_is_fine_where_it_is_listed(tmp_path):
    path = _write(tmp_path, classes=NAMES, train=["体育", "体育", "娱乐", "科技"], val=NAMES)
    assert load_news(path).labels.names == NAMES


# --- faults -----------------------------------------------------------------------------------


@pytest.mark.parametrize("split", ["train", "val", "test"])
@pytest.mark.parametrize("label", ["3", "-1", "体育"])
def test_an_id_outside_the_class_file_is_refused_with_its_place(tmp_path, split, label):
    splits = {"train": [*"012012"], "val": [*"012"], "test": [*"012"]}
    splits[split] = [*splits[split], label]
    path = _write(tmp_path, classes=NAMES, **splits)
    with pytest.raises(DataError, match="expected a class id from 0 to 2") as caught:
        load_news(path)
    (problem,) = caught.value.problems
    assert problem.startswith(f"{split}.txt:{len(splits[split])}: ")
    assert problem.endswith(f"found {label!r}")
    assert "class.txt" in str(caught.value)


@pytest.mark.parametrize("split", ["val", "test"])
@pytest.mark.parametrize("classes", [NAMES, None], ids=["class.txt", "data"])
def test_an_unknown_label_outside_train_is_refused_with_its_place(tmp_path, split, classes):
    splits = {"train": [*NAMES, *NAMES], "val": NAMES, "test": NAMES}
    splits[split] = ["体育", "财经", "财经"]
    path = _write(tmp_path, classes=classes, **splits)
    with pytest.raises(DataError, match="expected one of 体育, 娱乐, 科技") as caught:
        load_news(path)
    places = [problem.split(": ")[0] for problem in caught.value.problems]
    assert places == [f"{split}.txt:2", f"{split}.txt:3"]
    assert f"come from {'class.txt' if classes else 'train'}" in str(caught.value)


def test_faults_of_all_files_are_told_at_once(tmp_path):
    path = _write(
        tmp_path,
        train=[*NAMES, *NAMES, ("", "体育")],
        val=["体育", ("决赛", "")],
        test=NAMES,
    )
    with pytest.raises(DataError) as caught:
        load_news(path)
    places = [problem.split(": ")[0].rsplit("/", 1)[1] for problem in caught.value.problems]
    assert places == ["train.txt:7", "val.txt:2"]


def test_a_thousand_faults_are_a_screen_and_a_count(tmp_path):
    path = _write(tmp_path, classes=NAMES, train=[*"012", *["9"] * 1_500, *"012" * 500])
    with pytest.raises(DataError, match="and 1,480 more") as caught:
        load_news(path)
    assert len(str(caught.value).splitlines()) <= 23


def test_data_of_one_class_is_refused(tmp_path):
    path = _write(tmp_path, train=["体育"] * 4, val=["体育"], test=["体育"])
    with pytest.raises(DataError, match="two or more"):
        load_news(path)


@pytest.mark.parametrize("path", ["nwes", "nwes/train.txt"])
def test_a_missing_path_is_refused(tmp_path, path):
    with pytest.raises(DataError, match=r"data\.path: expected a folder or a file"):
        load_news(str(tmp_path / path))


# --- holdout ----------------------------------------------------------------------------------

SIZES = {"体育": 100, "娱乐": 50, "科技": 30}


def _lone_file(tmp_path, sizes=SIZES):
    labels = [label for label, size in sizes.items() for _ in range(size)]
    random.Random(0).shuffle(labels)
    return _write(tmp_path, titles=labels)


def _counts(news, split):
    return Counter(record.label for record in news.records[split])


def _lines(news, split):
    return [record.line for record in news.records[split]]


def test_a_lone_file_is_split_by_class(tmp_path):
    news = load_news(_lone_file(tmp_path), holdout_ratio=0.1)
    assert _counts(news, "val") == _counts(news, "test") == {"体育": 10, "娱乐": 5, "科技": 3}
    assert _counts(news, "train") == {"体育": 80, "娱乐": 40, "科技": 24}


@pytest.mark.parametrize("ratio", [0.01, 0.1, 0.25, 0.49])
def test_the_parts_of_a_lone_file_are_disjoint_and_complete(tmp_path, ratio):
    news = load_news(_lone_file(tmp_path), holdout_ratio=ratio)
    lines = [line for split in ("train", "val", "test") for line in _lines(news, split)]
    assert sorted(lines) == list(range(1, 181))


def test_the_split_follows_the_seed(tmp_path):
    path = _lone_file(tmp_path)
    first, again, other = (load_news(path, seed=seed) for seed in (1, 1, 2))
    for split in ("train", "val", "test"):
        assert _lines(first, split) == _lines(again, split)
        assert sorted(_lines(first, split)) != sorted(_lines(other, split))


def test_train_rows_keep_the_order_of_the_file(tmp_path):
    lines = _lines(load_news(_lone_file(tmp_path)), "train")
    assert lines == sorted(lines)


def test_what_was_split_off_is_noted(tmp_path):
    (note,) = load_news(_lone_file(tmp_path), seed=7).notes
    assert "no file for val and test" in note
    assert "seed 7" in note
    assert "train 144, val 18, test 18" in note


def test_only_val_is_split_off_beside_a_test_file(tmp_path):
    path = _write(tmp_path, train=NAMES * 20, test=NAMES)
    news = load_news(path)
    assert _counts(news, "val") == dict.fromkeys(NAMES, 2)
    assert _counts(news, "train") == dict.fromkeys(NAMES, 18)
    assert _counts(news, "test") == dict.fromkeys(NAMES, 1)
    assert {record.source for record in news.records["test"]} == {"test.txt"}


def test_nothing_is_split_off_beside_a_val_file(tmp_path):
    news = load_news(_write(tmp_path, train=NAMES * 20, dev=NAMES))
    assert {split: len(records) for split, records in news.records.items()} == {
        "train": 60,
        "val": 3,
    }


def test_the_global_random_state_neither_matters_nor_changes(tmp_path):
    path = _lone_file(tmp_path)
    random.seed(1)
    state = random.getstate()
    first = load_news(path)
    assert random.getstate() == state
    random.seed(2)
    assert _lines(load_news(path), "val") == _lines(first, "val")


def test_a_class_too_small_to_split_is_refused(tmp_path):
    path = _lone_file(tmp_path, {"体育": 20, "娱乐": 2, "科技": 20})
    with pytest.raises(DataError, match=r"at least 3 rows of class '娱乐'.* – found 2") as caught:
        load_news(path)
    assert len(caught.value.problems) == 1
    assert "give val and test files of your own" in str(caught.value)


@pytest.mark.parametrize("ratio", [0.01, 0.1, 0.3, 0.4, 0.45, 0.49])
@pytest.mark.parametrize("size", [3, 4, 5, 6, 8])
def test_each_class_stays_in_each_part(tmp_path, size, ratio):
    sizes = dict.fromkeys(NAMES, size)
    news = load_news(_lone_file(tmp_path, sizes), holdout_ratio=ratio)
    for split in ("train", "val", "test"):
        assert set(_counts(news, split)) == set(NAMES), split


# --- fingerprint ------------------------------------------------------------------------------


def test_the_fingerprint_does_not_depend_on_the_place(tmp_path):
    splits = {"classes": NAMES, "train": "012012", "val": "012", "test": "012"}
    first = load_news(_write(tmp_path / "a", **splits))
    second = load_news(_write(tmp_path / "b", **splits))
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
def test_the_fingerprint_changes_with_each_file(tmp_path, change):
    splits = {"classes": NAMES, "train": "012012", "val": "012", "test": "012"}
    first = load_news(_write(tmp_path / "a", **splits))
    second = load_news(_write(tmp_path / "b", **{**splits, **change}))
    assert first.fingerprint != second.fingerprint


def test_other_files_in_the_folder_do_not_matter(tmp_path):
    path = _write(tmp_path, train=NAMES * 2, val=NAMES, test=NAMES)
    before = load_news(path).fingerprint
    (tmp_path / "notes.md").write_text("about the data")
    assert load_news(path).fingerprint == before


# --- with a checkpoint ------------------------------------------------------------------------

TRAINED = Trained(["科技", "体育", "娱乐"], "another", must_be_same=False)


def test_ids_are_mapped_to_the_order_of_the_checkpoint(tmp_path):
    path = _write(tmp_path, classes=NAMES, train="012", val="01", test="210")
    news = load_news(path, trained=TRAINED)
    assert news.labels.names == TRAINED.class_names
    assert _indices(news, "test") == [0, 2, 1]
    assert _indices(news, "val") == [1, 2]


@pytest.mark.parametrize("classes", [NAMES, None], ids=["class.txt", "data"])
def test_names_are_mapped_to_the_order_of_the_checkpoint(tmp_path, classes):
    path = _write(tmp_path, classes=classes, train=NAMES * 2, val=NAMES, test=NAMES)
    news = load_news(path, trained=TRAINED)
    assert news.labels.names == TRAINED.class_names
    assert _indices(news, "test") == [1, 2, 0]


def test_ids_without_class_file_are_those_of_the_checkpoint(tmp_path):
    news = load_news(_write(tmp_path, val="012", test="20"), trained=TRAINED)
    assert _indices(news, "test") == [2, 0]


def test_some_classes_of_the_checkpoint_are_enough(tmp_path):
    path = _write(tmp_path, classes=["娱乐", "科技"], test="0110")
    news = load_news(path, trained=TRAINED)
    assert len(news.labels) == 3
    assert _indices(news, "test") == [2, 0, 0, 2]


@pytest.mark.parametrize("labels", ["ids", "names", "names from the data"])
def test_other_classes_than_those_of_the_checkpoint_are_refused_with_both_lists(tmp_path, labels):
    names = ["体育", "娱乐", "财经", "股票"]
    rows = [str(index) for index in range(4)] if labels == "ids" else names
    classes = None if labels == "names from the data" else names
    path = _write(tmp_path, classes=classes, train=rows * 2, val=rows, test=rows)
    with pytest.raises(CheckpointError, match="ckpt_path") as caught:
        load_news(path, trained=TRAINED)
    assert all(name in str(caught.value) for name in names)
    assert "科技, 体育, 娱乐" in str(caught.value)


def test_an_odd_label_in_data_for_a_checkpoint_is_not_blamed_on_train(tmp_path):
    path = _write(tmp_path, test=[*NAMES, *NAMES, "发布"])
    with pytest.raises((DataError, CheckpointError), match="发布") as caught:
        load_news(path, trained=TRAINED)
    assert "come from train" not in str(caught.value)


def test_the_data_of_the_run_itself_is_taken_if_it_is_unchanged(tmp_path):
    path = _lone_file(tmp_path)
    first = load_news(path, seed=3)
    again = load_news(path, seed=3, trained=Trained(first.labels.names, first.fingerprint, seed=3))
    assert again.fingerprint == first.fingerprint
    assert again.records == first.records


def test_changed_data_of_the_run_itself_is_refused(tmp_path):
    path = _lone_file(tmp_path)
    first = load_news(path)
    with (tmp_path / "titles.txt").open("a", encoding="utf-8") as file:
        file.write("新片\t娱乐\n")
    with pytest.raises(CheckpointError, match=r"data\.path.* has changed") as caught:
        load_news(path, trained=Trained(first.labels.names, first.fingerprint))
    assert "give --data.path" in str(caught.value)


def test_a_lone_file_of_other_data_is_evaluated_whole(tmp_path):
    news = load_news(_lone_file(tmp_path), trained=TRAINED)
    assert set(news.records) == {"val", "test"}
    assert _lines(news, "val") == _lines(news, "test") == list(range(1, 181))


def test_other_data_needs_no_train_file(tmp_path):
    news = load_news(_write(tmp_path, test=NAMES), trained=TRAINED)
    assert _indices(news, "test") == [1, 2, 0]


# --- the built-in corpus ----------------------------------------------------------------------


def test_the_built_in_corpus_needs_no_file():
    news = load_news(BUILTIN)
    assert news.labels.names == list(CORPUS_CLASSES)
    assert {split: len(records) for split, records in news.records.items()} == {
        "train": 16_000,
        "val": 2_000,
        "test": 2_000,
    }


def test_the_classes_of_the_built_in_corpus_can_be_put_in_another_order():
    names = list(CORPUS_CLASSES)[::-1]
    news = load_news(BUILTIN, class_names=names)
    assert news.labels.names == names


def test_other_names_for_the_built_in_corpus_are_refused():
    with pytest.raises(DataError, match="built-in corpus has the classes"):
        load_news(BUILTIN, class_names=NAMES)


def test_the_built_in_corpus_is_its_own_fingerprint():
    fingerprint = load_news(BUILTIN).fingerprint
    news = load_news(BUILTIN, trained=Trained(list(CORPUS_CLASSES), fingerprint))
    assert news.fingerprint == fingerprint
    with pytest.raises(CheckpointError, match="has changed"):
        load_news(BUILTIN, trained=Trained(list(CORPUS_CLASSES), "built-in corpus 0"))


def test_the_built_in_corpus_is_mapped_to_the_order_of_the_checkpoint():
    names = list(CORPUS_CLASSES)[::-1]
    news = load_news(BUILTIN, trained=Trained(names, "another", must_be_same=False))
    assert news.labels.names == names
    assert news.labels.index(CORPUS_CLASSES[0]) == len(names) - 1


def test_the_built_in_corpus_is_refused_by_a_checkpoint_of_other_classes():
    with pytest.raises(CheckpointError, match="财经"):
        load_news(BUILTIN, trained=Trained(["财经", "股票"], "another", must_be_same=False))
