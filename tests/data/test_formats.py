"""Each layout met in public repositories is read right, or refused with the reason.

What to expect is read from the same file again, in the simplest way that this one file allows, so
that no headline has to stand here.
"""

import csv
import json
import shutil
from collections.abc import Callable
from typing import NamedTuple

import pytest

from bert_lightning.data.classes import read_class_file
from bert_lightning.data.loading import load_news
from bert_lightning.data.reading import ReadingSettings, read_data
from bert_lightning.data.storage import Storage
from bert_lightning.errors import DataError


def _lines(path, encoding="utf-8"):
    return path.read_bytes().decode(encoding).replace("\r\n", "\n").removesuffix("\n").split("\n")


def _title_last(separator, encoding="utf-8"):
    """Label first, all after the first separator is the title."""

    def read(path):
        rows = [line.partition(separator) for line in _lines(path, encoding)]
        return [(title.strip(), label) for label, middle, title in rows if middle]

    return read


def _label_last(separator, encoding="utf-8"):
    """Title first, all after the last separator is the label."""

    def read(path):
        rows = [line.rpartition(separator) for line in _lines(path, encoding)]
        return [(title.strip(), label) for title, middle, label in rows if middle]

    return read


def _table(text, label, **options):
    def read(path):
        with path.open(encoding="utf-8-sig", newline="") as stream:
            return [(row[text].strip(), row[label]) for row in csv.DictReader(stream, **options)]

    return read


def _json_array(text, label):
    def read(path):
        rows = json.loads(path.read_text(encoding="utf-8"))
        return [(row[text].strip(), str(row[label])) for row in rows]

    return read


def _json_lines(text, label):
    def read(path):
        rows = map(json.loads, _lines(path))
        return [(row[text].strip(), str(row[label])) for row in rows]

    return read


def _toutiao(path):
    rows = [line.split("_!_") for line in _lines(path)]
    return [(row[3].strip(), row[2]) for row in rows]


def _tree(encoding):
    def read(folder):
        files = sorted(folder.glob("*/*.txt"), key=lambda file: (file.parent.name, int(file.stem)))
        contents = [file.read_bytes().decode(encoding).split("\n") for file in files]
        texts = [" ".join(part.strip() for part in lines if part.strip()) for lines in contents]
        return [(text, file.parent.name) for text, file in zip(texts, files, strict=True)]

    return read


class Format(NamedTuple):
    """A layout: its files by split, how to read one simply, and the figures of each.

    A file that stands alone is read to be evaluated and is called val. `rows` and `labels` are
    numbers of rows and of different labels of the first file, `faults` that of all.
    """

    path: str
    files: dict[str, str]
    read: Callable
    rows: int
    labels: int
    has_ids: bool = False
    faults: int = 0


def _alone(path, *rest, **named):
    return Format(path, {"val": "."}, *rest, **named)


DEV = {"val": "dev.txt"}
READ = [
    Format("01_title_tab_id", DEV, _label_last("\t"), 200, 10, has_ids=True),
    _alone("02_title_tab_name.txt", _label_last("\t"), 11, 6),
    _alone("03_name_tab_title_sorted.txt", _title_last("\t"), 99, 1, faults=1),
    _alone("04_english_name_tab_title.txt", _title_last("\t"), 200, 10),
    _alone("05_cnews_name_tab_fulltext.txt", _title_last("\t"), 20, 9),
    _alone("06_csv_header_text_label_crlf.csv", _table("text", "label"), 150, 10, has_ids=True),
    _alone("07_csv_placeholder_labels.csv", _table("text", "label"), 150, 1, has_ids=True),
    _alone("08_csv_bom_header_segmented.csv", _table("news", "category"), 199, 18),
    _alone("09_csv_noheader_unquoted_commas.txt", _title_last(","), 200, 1),
    _alone("10_json_array_input_target.json", _json_array("input", "target"), 49, 2),
    Format(
        "11_json_array_text_label_int",
        {"test": "test.json"},
        _json_array("text", "label"),
        *(49, 5),
        has_ids=True,
    ),
    _alone("12_jsonl_label_name_text.json", _json_lines("text", "label"), 132, 10),
    Format(
        "13_jsonl_tnews_clue", {"val": "dev.json"}, _json_lines("sentence", "label_desc"), 200, 15
    ),
    _alone("14_jsonl_tnews_fewclue.json", _json_lines("sentence", "label_desc"), 200, 15),
    _alone("15_jsonl_iflytek_label_des.json", _json_lines("sentence", "label_des"), 20, 19),
    _alone("17_toutiao_bang_5_fields.txt", _toutiao, 200, 14),
    _alone("18_toutiao_title_bang_id.txt", _label_last("_!_"), 200, 14, has_ids=True),
    Format("19_gbk_tree", {"train": "train", "test": "test"}, _tree("gb18030"), 20, 4),
    Format(
        "20_gbk_id_space_title",
        {split: f"cnews.{split}.txt" for split in ("train", "val", "test")},
        _title_last(" ", "gb18030"),
        *(2, 1),
        has_ids=True,
    ),
    _alone("21_bom_title_space_id_crlf.txt", _label_last(" ", "utf-8-sig"), 200, 2, has_ids=True),
    Format("23_names_permuted", {"val": "dev.txt", "test": "test.txt"}, _label_last("\t"), 100, 10),
    Format("24_wrong_class_file", DEV, _label_last("\t"), 200, 10, has_ids=True),
    Format(
        "25_val_equals_test",
        {"val": "cnews.val.txt", "test": "cnews.test.txt"},
        _title_last("\t"),
        *(200, 14),
    ),
    Format("29_appledouble", DEV, _label_last("\t"), 50, 2, has_ids=True),
    _alone(
        "30_tsv_header_label_text_a.tsv",
        _table("text_a", "label", delimiter="\t", quoting=csv.QUOTE_NONE),
        *(50, 2),
        has_ids=True,
    ),
    Format("33_utf8_tree", {"train": "train", "test": "test"}, _tree("utf-8"), 24, 3),
    Format("34_all_predictions_zero", {"val": "predict.txt"}, _label_last("\t"), 100, 1, True),
]
TO_TRAIN_ON = [
    ("27_git_lfs_pointer", r"a Git LFS pointer: the data was never fetched"),
    ("28_failed_download.csv", r"a saved web page or error message: download the data again"),
    ("29_appledouble/._dev.txt", r"macOS AppleDouble metadata: delete the files named \._\*"),
    ("31_csv_name_tab_inside_no_label.csv", r"found no end of the lines that repeats as a label"),
    ("32_multilabel_bar_comma_bar.csv", r"expected one label a row – found several"),
    ("07_csv_placeholder_labels.csv", r"class names: expected two or more – found \['0'\]"),
    ("16_jsonl_unlabelled_test.json", r"expected labels – found .*no column of labels"),
    ("34_all_predictions_zero/predict.txt", r"class names: expected two or more – found \['0'\]"),
]
CLASS_FILES = [  # name and number of names; 0 where it is refused
    ("chinese_10.txt", 10),
    ("chinese_synonyms_10.txt", 10),
    ("crlf_typo_reality.txt", 10),
    ("digits_only.txt", 3),
    ("extra_11th_name.txt", 11),
    ("household_order.txt", 10),
    ("id_zh_en.txt", 10),
    ("ids_from_0_lf.txt", 10),
    ("python_list_and_pairs.txt", 0),
    ("seven_trailing_blank_lines.txt", 10),
]


def _check_read(form, formats, tmp_path):
    path = formats / form.path
    reading = read_data(
        str(path), Storage(tmp_path), ReadingSettings(), needs_train="train" in form.files
    )
    for split, file in form.files.items():
        found = [(record.text, record.label) for record in reading.records[split]]
        assert found == form.read(path / file)
    first = reading.records[next(iter(form.files))]
    labels = {record.label for record in first}
    assert (len(first), len(labels)) == (form.rows, form.labels)
    assert all(label.isdigit() for label in labels) == form.has_ids
    assert len({(fault.source, fault.line) for fault in reading.faults}) == form.faults


def _check_refused(case, formats, tmp_path):
    path, reason = case
    with pytest.raises(DataError, match=reason):
        load_news(str(formats / path), Storage(tmp_path))


def _check_class_file(case, formats, tmp_path):
    name, count = case
    file = formats / "22_class_files" / name
    if not count:
        with pytest.raises(DataError, match="expected one list of class names"):
            read_class_file(file, "auto")
        return
    lines = [line.split() for line in file.read_text(encoding="utf-8").split("\n") if line.strip()]
    column = 1 if len(lines[0]) > 1 else 0
    classes = read_class_file(file, "auto")
    assert classes.names == [line[column] for line in lines]
    assert len(classes.names) == count
    others = {word: line[1] for line in lines if column for word in (line[0], *line[2:])}
    assert {word: classes.meanings.get(word) for word in others} == others


def _check_ids_with_names(case, formats, tmp_path):
    """A table of ids beside `id name english` lines."""
    folder = tmp_path / "news"
    folder.mkdir()
    shutil.copy(formats / "06_csv_header_text_label_crlf.csv", folder / "train.csv")
    shutil.copy(formats / "06_class_id_zh_en.txt", folder / "class.txt")
    news = load_news(str(folder), Storage(tmp_path))
    names = [line.split()[1] for line in _lines(folder / "class.txt")]
    assert news.labels.names == names
    assert {label: news.labels.index(label) for label in "0123456789"} == {
        str(number): number for number in range(10)
    }
    assert sum(map(len, news.records.values())) == 150


def _check_names_of_clue(case, formats, tmp_path):
    """Names in the rows and names in labels.json are the same 15, in the order of that file."""
    folder = formats / "13_jsonl_tnews_clue"
    rows = list(map(json.loads, _lines(folder / "labels.json")))
    names = {row["label"]: row["label_desc"] for row in rows}
    reading = read_data(str(folder), Storage(tmp_path), ReadingSettings(), needs_train=False)
    assert reading.class_list.names == list(names.values())
    assert {number: reading.class_list.meanings[number] for number in names} == names
    wanted = [names[row["label"]] for row in map(json.loads, _lines(folder / "dev.json"))]
    assert [record.label for record in reading.records["val"]] == wanted


def _check_other_class_list(case, formats, tmp_path):
    """A second class list in another order is told, whichever file is first."""
    reading = read_data(str(formats / case), Storage(tmp_path), ReadingSettings(), False)
    assert reading.class_list.source == "class.txt"
    assert len(reading.class_list.others) == 1


CASES = [
    *(pytest.param(_check_read, form, id=form.path) for form in READ),
    *(pytest.param(_check_refused, case, id=f"{case[0]}, to train on") for case in TO_TRAIN_ON),
    *(pytest.param(_check_class_file, case, id=f"22_{case[0]}") for case in CLASS_FILES),
    pytest.param(_check_ids_with_names, None, id="06, with its class file"),
    pytest.param(_check_names_of_clue, None, id="13, with its class file"),
    pytest.param(_check_other_class_list, "23_names_permuted", id="23, with its class files"),
    pytest.param(_check_other_class_list, "24_wrong_class_file", id="24, with its class files"),
]


@pytest.mark.parametrize(("check", "case"), CASES)
def test_a_layout_is_read_right_or_refused_with_the_reason(check, case, real_data, tmp_path):
    check(case, real_data / "formats", tmp_path)


def test_every_layout_there_is_has_a_case(real_data):
    there = {path.name[:2] for path in (real_data / "formats").glob("[0-9]*")}
    assert there == {case.id[:2] for case in CASES}
