"""What damaged files have taught: each kind of them once was misread, lost or a traceback."""

import json
import os
import re
import time

import pytest

from bert_lightning.data.columns import refuse_several_labels
from bert_lightning.data.files import check_encoding
from bert_lightning.data.loading import load_news
from bert_lightning.data.reading import ReadingSettings, read_data
from bert_lightning.data.storage import Storage
from bert_lightning.errors import LONGEST_LINE, ConfigError, DataError

PAIRS = [(f"第{number}场比赛打完", "体育") for number in range(6)]
PAIRS += [(f"第{number}部影片上映", "娱乐") for number in range(6)]


@pytest.fixture
def read(tmp_path):
    """Write a file and read it: `read(name, content, **settings) -> Reading`."""

    def write_and_read(name, content, **settings):
        folder = tmp_path / "news"
        folder.mkdir(exist_ok=True)
        data = content if isinstance(content, bytes) else content.encode("utf-8")
        (folder / name).write_bytes(data)
        return read_data(str(folder), Storage(tmp_path / "cache"), ReadingSettings(**settings))

    return write_and_read


def pairs_of(reading):
    return [(record.text, record.label) for record in reading.records["train"]]


@pytest.mark.parametrize("blank", ["\t", " ", "\u3000", " \t "])
def test_blanks_at_the_end_of_a_line_part_nothing(read, blank):
    reading = read("train.txt", "".join(f"{text}\t{label}{blank}\n" for text, label in PAIRS))
    assert pairs_of(reading) == PAIRS
    assert not reading.faults


@pytest.mark.parametrize("blank", ["\t", "\u3000"])
def test_blanks_at_the_end_of_a_row_of_a_table_part_nothing(read, blank):
    rows = [f"{text}\t{label}{blank}\n" for text, label in PAIRS]
    assert pairs_of(read("train.tsv", "".join(["text\tlabel\n", *rows]))) == PAIRS


@pytest.mark.parametrize("header", ["text,label\n", ""])
def test_quotes_of_all_cells_go_even_with_blanks_behind_them(read, header):
    rows = [f'"{text},好","{label}"  \n' for text, label in PAIRS]
    wanted = [(f"{text},好", label) for text, label in PAIRS]
    assert pairs_of(read("train.csv", header + "".join(rows))) == wanted


@pytest.mark.parametrize("indent", [None, 1])
def test_json_may_have_any_blank_at_the_end_of_its_lines(read, indent):
    rows = [{"text": text, "label": label} for text, label in PAIRS]
    whole = json.dumps(rows, indent=indent) if indent else "\n".join(map(json.dumps, rows))
    reading = read("train.json", whole.replace("\n", "\u3000\n"))
    assert pairs_of(reading) == PAIRS
    assert not reading.faults


def test_json_lines_are_json_even_if_the_first_is_cut(read):
    lines = [
        json.dumps({"label": label, "text": text}, ensure_ascii=False) for text, label in PAIRS
    ]
    reading = read("train.json", "\n".join([lines[0][5:], *lines[1:]]))
    assert pairs_of(reading) == PAIRS[1:]
    assert [fault.line for fault in reading.faults] == [1]


def test_an_array_is_json_even_if_its_beginning_is_cut(read):
    rows = [{"text": text, "label": label} for text, label in PAIRS]
    reading = read("train.json", json.dumps(rows, indent=2, ensure_ascii=False)[20:])
    assert pairs_of(reading) == PAIRS[1:]
    assert {fault.line for fault in reading.faults} == {1}


def test_a_second_array_in_a_file_is_read_too_and_told(read):
    rows = [{"text": text, "label": label} for text, label in PAIRS]
    reading = read("train.json", json.dumps(rows[:4]) + "\n" + json.dumps(rows[4:]))
    assert pairs_of(reading) == PAIRS
    assert [str(fault)[:53] for fault in reading.faults] == [
        "train.json:2: expected nothing after the array – foun"
    ]


@pytest.mark.parametrize("deep", ["[" * 100_000, '{"a":' * 100_000])
def test_nesting_without_end_is_a_fault(read, deep):
    rows = [{"text": text, "label": label} for text, label in PAIRS]
    reading = read("train.json", f"[\n{json.dumps(rows)[1:-1]},\n{deep}\n]")
    assert pairs_of(reading) == PAIRS
    assert reading.faults[0].line == 3


def test_a_header_that_comes_again_is_no_row(read):
    rows = [f"{text},{label}\n" for text, label in PAIRS]
    reading = read("train.csv", "".join(["text,label\n", *rows[:3], "text,label\n", *rows[3:]]))
    assert pairs_of(reading) == PAIRS
    assert str(reading.faults[0]) == "train.csv:5: expected a row – found the header again"


def test_a_cell_may_be_longer_than_the_limit_of_the_csv_module(read):
    long = "长" * 140_000
    rows = [f"{text},{label}\n" for text, label in [(f'"{long}"', "体育"), *PAIRS]]
    assert pairs_of(read("train.csv", "".join(["text,label\n", *rows]))) == [(long, "体育"), *PAIRS]
    assert pairs_of(read("train.csv", "".join(rows))) == [(long, "体育"), *PAIRS]


def test_long_texts_in_the_column_of_labels_cost_no_time():
    start = time.perf_counter()
    refuse_several_labels(["长" * 200_000], "train.csv")
    assert time.perf_counter() - start < 1


def test_text_files_named_as_shards_are_refused_not_read_in_part(read):
    read("train-00000-of-00002.txt", "".join(f"{text}\t{label}\n" for text, label in PAIRS))
    with pytest.raises(DataError, match=r"one file for train – found train-00000-of-00002.txt, tr"):
        read("train-00001-of-00002.txt", "".join(f"{text}\t{label}\n" for text, label in PAIRS))


def test_a_file_of_no_line_in_the_wanted_encoding_says_what_stands_there(read):
    content = "".join(f"{text}\t{label}\n" for text, label in PAIRS).encode("gb18030")
    with pytest.raises(DataError, match=r"train.txt:1: expected utf-8 text – found byte 0xb5 at"):
        read("train.txt", content, encoding="utf-8")


def parquet_of(columns):
    import pyarrow as pa
    from pyarrow import parquet

    sink = pa.BufferOutputStream()
    parquet.write_table(pa.table(columns), sink)
    return sink.getvalue().to_pybytes()


def test_damage_inside_a_parquet_file_is_told(read):
    texts, labels = zip(*PAIRS, strict=True)
    content = bytearray(parquet_of({"text": texts, "label": labels}))
    content[4:40] = bytes(36)
    with pytest.raises(DataError, match=r"train.parquet: expected Parquet – found .*"):
        read("train.parquet", bytes(content))


def test_each_parquet_shard_must_have_the_columns(read):
    texts, labels = zip(*PAIRS, strict=True)
    first = parquet_of({"text": texts, "label": labels})
    with pytest.raises(DataError, match="expected all parts of train"):
        read("train-00000-of-00002.parquet", first)
    with pytest.raises(DataError, match=r"00001-of-00002.parquet: expected the columns of"):
        read("train-00001-of-00002.parquet", parquet_of({"x": texts, "y": labels}))


def test_a_shard_may_have_its_columns_in_another_order(read):
    texts, labels = zip(*PAIRS, strict=True)
    with pytest.raises(DataError, match="expected all parts of train"):
        read("train-00000-of-00002.parquet", parquet_of({"text": texts, "label": labels}))
    second = parquet_of({"label": labels, "text": texts})
    assert pairs_of(read("train-00001-of-00002.parquet", second)) == PAIRS + PAIRS


def test_class_folders_with_names_in_gb18030_are_classes(tmp_path):
    """Archives that Windows made are unpacked so on Linux."""
    for number, (text, label) in enumerate(PAIRS):
        folder = os.fsencode(tmp_path / "news") + b"/train/" + label.encode("gb18030")
        os.makedirs(folder, exist_ok=True)  # noqa: PTH103 - a name in bytes
        with open(folder + f"/{number:02}.txt".encode(), "wb") as stream:  # noqa: PTH123
            stream.write(text.encode("gb18030"))
    reading = read_data(str(tmp_path / "news"), Storage(tmp_path / "cache"), ReadingSettings())
    assert sorted(pairs_of(reading)) == sorted(PAIRS)
    assert reading.records["train"][0].where == "train/体育/00.txt:1"


@pytest.mark.parametrize("content", ['5\n{"label": "1"}\n', '{"a":' * 100_000, '{"a": [1]}'])
def test_a_class_file_of_other_json_is_refused(tmp_path, content):
    (tmp_path / "train.txt").write_text("标题\t体育\n新片\t娱乐\n", encoding="utf-8")
    (tmp_path / "labels.json").write_text('{"a": 1}\n' + content, encoding="utf-8")
    with pytest.raises(DataError, match=r"labels\.json: expected one list of class names"):
        load_news(str(tmp_path), Storage(tmp_path / "cache"))


def test_a_folder_named_as_a_class_file_is_none(read, tmp_path):
    (tmp_path / "news" / "class.txt").mkdir(parents=True)
    reading = read("train.txt", "".join(f"{text}\t{label}\n" for text, label in PAIRS))
    assert reading.class_list is None


def test_no_line_of_an_error_is_longer_than_a_screen_has_room_for(tmp_path):
    (tmp_path / "train.txt").write_text("标题\t体育\n新片\t娱乐\n", encoding="utf-8")
    names = ["长" * 20_000, "短"]
    (tmp_path / "class.txt").write_text("\n".join(names), encoding="utf-8")
    with pytest.raises(DataError) as caught:
        load_news(str(tmp_path), Storage(tmp_path / "cache"))
    lines = str(caught.value).split("\n")
    assert max(map(len, lines)) <= LONGEST_LINE
    assert re.match(r"train\.txt:1: expected one of 长+ … 长*, 短 – found '体育'$", lines[0])


@pytest.mark.parametrize("name", ["undefined", "a\0b"])
def test_an_encoding_that_python_refuses_is_refused(name):
    with pytest.raises(ConfigError, match="expected auto, utf-8, gb18030 or another encoding"):
        check_encoding(name)
