import json
import re

import pytest

from bert_lightning.data.readers import (
    find_files,
    numbered_lines,
    read_class_names,
    read_texts,
    read_titles,
)
from bert_lightning.data.records import Record
from bert_lightning.errors import DataError

SEPARATORS = [pytest.param("\t", id="TAB"), pytest.param(" ", id="blank")]


def _write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return path


def _good(path):
    records, problems = read_titles(path)
    assert problems == []
    return records


# --- titles -----------------------------------------------------------------------------------


@pytest.mark.parametrize("separator", SEPARATORS)
@pytest.mark.parametrize(
    "title",
    [
        pytest.param("雪豹队加时逆转云城队", id="plain"),
        pytest.param("雪豹队 加时 逆转 云城队", id="blanks"),
        pytest.param("雪豹队  加时", id="two blanks"),
        pytest.param("首映礼\u3000主创亮相", id="U+3000"),
        pytest.param("首映礼\u00a0主创亮相", id="no-break blank"),
        pytest.param('"雪豹"夺冠', id="quote first"),
        pytest.param('歌手"复出', id="one quote"),
        pytest.param("'新居'“改造”,全记录", id="quotes and comma"),
        pytest.param("甲\u2028乙", id="U+2028"),
        pytest.param("甲\u0085乙", id="U+0085"),
        pytest.param("甲\x0b乙\x0c丙\x1c丁", id="old separators"),
        pytest.param("体育 娱乐 体育", id="label-like words"),
        pytest.param("#1 ＡＢ２ 🎬", id="signs and emoji"),
    ],
)
def test_the_label_stands_after_the_last_separator(tmp_path, title, separator):
    path = _write(tmp_path / "train.txt", f"{title}{separator}体育\n测试 之二{separator}娱乐\n")
    assert _good(path) == [
        Record(title, "体育", "train.txt", 1),
        Record("测试 之二", "娱乐", "train.txt", 2),
    ]


def test_a_title_keeps_a_tab_before_the_last_one(tmp_path):
    path = _write(tmp_path / "train.txt", "甲\t乙\t体育\n丙\t娱乐\n")
    assert [(r.text, r.label) for r in _good(path)] == [("甲\t乙", "体育"), ("丙", "娱乐")]


@pytest.mark.parametrize("separator", SEPARATORS)
def test_blanks_around_title_and_label_are_left_out(tmp_path, separator):
    path = _write(tmp_path / "train.txt", f"  新片 上映 {separator} 娱乐  \n")
    assert [(r.text, r.label) for r in _good(path)] == [("新片 上映", "娱乐")]


@pytest.mark.parametrize("separator", SEPARATORS)
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize("last", [True, False], ids=["ended", "not ended"])
def test_all_line_ends_read_the_same(tmp_path, separator, end, last):
    rows = [f"新片 上映{separator}娱乐", f"决赛{separator}体育", f"地板{separator}家居"]
    path = _write(tmp_path / "train.txt", end.join(rows) + (end if last else ""))
    assert _good(path) == [
        Record("新片 上映", "娱乐", "train.txt", 1),
        Record("决赛", "体育", "train.txt", 2),
        Record("地板", "家居", "train.txt", 3),
    ]


@pytest.mark.parametrize("separator", SEPARATORS)
def test_a_byte_order_mark_is_no_part_of_the_first_title(tmp_path, separator):
    path = _write(tmp_path / "train.txt", b"\xef\xbb\xbf" + f"新片{separator}娱乐\n".encode())
    assert [r.text for r in _good(path)] == ["新片"]


@pytest.mark.parametrize("separator", SEPARATORS)
def test_blank_lines_are_skipped_and_counted_in_line_numbers(tmp_path, separator):
    content = f"\n甲{separator}体育\n\n   \n\t\n\u3000\n乙{separator}娱乐\n\n"
    path = _write(tmp_path / "train.txt", content)
    assert [(r.line, r.text) for r in _good(path)] == [(2, "甲"), (7, "乙")]


def test_a_row_without_tab_in_a_tab_file_is_a_fault_with_its_place(tmp_path):
    path = _write(tmp_path / "train.txt", "甲\t体育\n\n乙 娱乐\n丙\t娱乐\n")
    records, problems = read_titles(path)
    assert [r.line for r in records] == [1, 4]
    assert problems == [f"{path}:3: expected a title, a TAB and a label – found '乙 娱乐'"]


def test_a_row_with_a_tab_in_a_blank_file_is_read(tmp_path):
    path = _write(tmp_path / "train.txt", "甲 体育\n乙 丙 娱乐\n丁\t娱乐\n")
    assert [(r.text, r.label) for r in _good(path)] == [
        ("甲", "体育"),
        ("乙 丙", "娱乐"),
        ("丁", "娱乐"),
    ]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        pytest.param("\t体育", "expected a title before the label", id="no title"),
        pytest.param("   \t体育", "expected a title before the label", id="title of blanks"),
        pytest.param("\u3000\t体育", "expected a title before the label", id="title of U+3000"),
        pytest.param("甲\t", "expected a label after the last TAB", id="no label"),
        pytest.param("甲\t体育\t", "expected a label after the last TAB", id="TAB at the end"),
        pytest.param("甲", "expected a title, a TAB and a label", id="no TAB"),
    ],
)
def test_a_row_that_lacks_a_part_is_a_fault(tmp_path, row, message):
    path = _write(tmp_path / "train.txt", f"新片\t娱乐\n{row}\n决赛\t体育\n")
    records, problems = read_titles(path)
    assert [r.line for r in records] == [1, 3]
    assert problems == [f"{path}:2: {message} – found {row.strip()!r}"]


def test_a_row_of_one_word_in_a_blank_file_is_a_fault(tmp_path):
    path = _write(tmp_path / "train.txt", "新片 娱乐\n   体育\n决赛 体育\n")
    records, problems = read_titles(path)
    assert [r.line for r in records] == [1, 3]
    assert problems == [f"{path}:2: expected a title, a blank and a label – found '体育'"]


def test_the_found_part_of_a_fault_is_cut_to_a_screen_line(tmp_path):
    path = _write(tmp_path / "train.txt", "甲\t体育\n乙\t体育\n" + "长" * 5_000 + "\n")
    _, (problem,) = read_titles(path)
    assert len(problem) < len(str(path)) + 150


def test_a_title_of_a_hundred_thousand_characters_is_read_whole(tmp_path):
    path = _write(tmp_path / "train.txt", "长" * 100_000 + "\t体育\n")
    assert len(_good(path)[0].text) == 100_000


@pytest.mark.parametrize("content", ["", "\n \n\t\n", "\ufeff"], ids=["empty", "blank", "BOM"])
def test_a_file_without_text_is_refused_by_name(tmp_path, content):
    path = _write(tmp_path / "train.txt", content)
    with pytest.raises(DataError, match="found an empty file") as caught:
        read_titles(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("encoding", ["gbk", "gb18030", "utf-16"])
def test_a_file_in_another_encoding_is_refused_with_the_way_out(tmp_path, encoding):
    path = _write(tmp_path / "train.txt", "雪豹队逆转 体育\n新片 娱乐\n".encode(encoding))
    with pytest.raises(DataError, match="expected UTF-8 text") as caught:
        read_titles(path)
    assert str(path) in str(caught.value)
    assert "iconv -f GB18030 -t UTF-8 train.txt" in str(caught.value)


def test_a_wrong_byte_far_down_the_file_is_found(tmp_path):
    path = _write(
        tmp_path / "train.txt", "新片 娱乐\n".encode() * 5_000 + "地板 家居".encode("gbk")
    )
    with pytest.raises(DataError, match="expected UTF-8 text"):
        read_titles(path)


def test_lines_without_end_are_numbered_from_one(tmp_path):
    path = _write(tmp_path / "any.txt", "甲\n\n乙\u2028丙")
    assert list(numbered_lines(path)) == [(1, "甲"), (2, ""), (3, "乙\u2028丙")]


def test_a_folder_in_place_of_a_file_is_refused(tmp_path):
    with pytest.raises(DataError, match="expected a readable file"):
        list(numbered_lines(tmp_path))


# --- class.txt --------------------------------------------------------------------------------


def test_without_class_file_there_are_no_names(tmp_path):
    assert read_class_names(tmp_path) is None


def test_blank_lines_of_the_class_file_are_no_classes(tmp_path):
    _write(tmp_path / "class.txt", "\ufeff体育\r\n 娱乐 \r\n\r\n家居\r\n\r\n\r\n")
    assert read_class_names(tmp_path) == ["体育", "娱乐", "家居"]


# --- files ------------------------------------------------------------------------------------


def _touch(folder, *names):
    folder.mkdir(exist_ok=True)
    for name in names:
        _write(folder / name, "新片 娱乐\n")
    return folder


@pytest.mark.parametrize("suffix", [".txt", ".tsv"])
@pytest.mark.parametrize("val", ["val", "valid", "validation", "dev", "Dev"])
def test_each_split_is_found_by_its_name(tmp_path, val, suffix):
    _touch(tmp_path, f"train{suffix}", f"{val}{suffix}", f"test{suffix}", "class.txt", "notes.md")
    assert find_files(tmp_path) == {
        "train": tmp_path / f"train{suffix}",
        "val": tmp_path / f"{val}{suffix}",
        "test": tmp_path / f"test{suffix}",
    }


@pytest.mark.parametrize("name", ["Train.txt", "TRAIN.TXT"])
def test_capitals_in_names_do_not_matter(tmp_path, name):
    _touch(tmp_path, name, "test.txt")
    assert find_files(tmp_path)["train"] == tmp_path / name


def test_two_files_for_one_split_are_refused_by_name(tmp_path):
    _touch(tmp_path, "train.txt", "dev.txt", "val.txt")
    with pytest.raises(DataError, match=r"one file for val – found dev\.txt, val\.txt"):
        find_files(tmp_path)


def test_two_files_for_two_splits_are_told_at_once(tmp_path):
    _touch(tmp_path, "train.txt", "train.tsv", "dev.txt", "val.txt")
    with pytest.raises(DataError) as caught:
        find_files(tmp_path)
    assert len(caught.value.problems) == 2


@pytest.mark.parametrize(
    ("needs_train", "splits"), [(True, ["train"]), (False, ["val", "test"])], ids=["fit", "test"]
)
@pytest.mark.parametrize("as_folder", [True, False], ids=["folder", "file"])
def test_a_lone_file_is_all_the_data(tmp_path, needs_train, splits, as_folder):
    _touch(tmp_path, "titles.txt", "class.txt")
    file = tmp_path / "titles.txt"
    path = tmp_path if as_folder else file
    assert find_files(path, needs_train) == dict.fromkeys(splits, file)


def test_train_alone_is_enough_to_train(tmp_path):
    _touch(tmp_path, "train.txt", "readme.txt")
    assert find_files(tmp_path) == {"train": tmp_path / "train.txt"}


def test_test_alone_is_enough_to_evaluate(tmp_path):
    _touch(tmp_path, "test.txt", "readme.txt")
    assert find_files(tmp_path, needs_train=False) == {"test": tmp_path / "test.txt"}


@pytest.mark.parametrize(
    ("names", "found"),
    [
        pytest.param([], "found an empty folder", id="empty"),
        pytest.param(["a.txt", "b.txt"], r"found a\.txt, b\.txt", id="two others"),
        pytest.param(["val.txt", "test.txt"], r"found test\.txt, val\.txt", id="no train"),
        pytest.param(["train.csv"], r"found train\.csv", id="suffix"),
    ],
)
def test_a_folder_without_train_file_is_refused_with_its_content(tmp_path, names, found):
    _touch(tmp_path, *names)
    with pytest.raises(DataError, match=found) as caught:
        find_files(tmp_path)
    assert f"{tmp_path}: expected train.txt" in str(caught.value)
    assert "name the files train.txt, val.txt (or dev.txt) and test.txt" in str(caught.value)


def test_a_missing_folder_is_refused_with_its_full_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"data\.path: expected a folder or a file") as caught:
        find_files(tmp_path.__class__("nwes"))
    assert str(tmp_path / "nwes") in str(caught.value)


# --- texts to predict -------------------------------------------------------------------------


def _texts(path):
    return [(record.text, record.line) for record in read_texts(path)]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["LF", "CRLF", "CR"])
def test_each_line_of_a_text_file_is_a_text_and_empty_ones_keep_their_place(tmp_path, end):
    lines = ["雪豹队 夺冠", "", "  ", '"新片"\t上映', "甲\u2028乙"]
    path = _write(tmp_path / "titles.txt", end.join(lines) + end)
    expected = [("雪豹队 夺冠", 1), ("", 2), ("", 3), ('"新片"\t上映', 4), ("甲\u2028乙", 5)]
    assert _texts(path) == expected
    assert all(record.label is None for record in read_texts(path))


def test_an_empty_text_file_holds_no_text(tmp_path):
    assert read_texts(_write(tmp_path / "titles.txt", "")) == []


@pytest.mark.parametrize("suffix", [".jsonl", ".json"])
@pytest.mark.parametrize("column", ["text", "title", "sentence", "content"])
def test_a_line_of_json_is_a_text_and_empty_ones_keep_their_place(tmp_path, column, suffix):
    rows = [json.dumps({"id": 1, column: "新片 上映"}), "", json.dumps({column: ""})]
    rows += [json.dumps({column: None}), json.dumps({column: " 决赛 \u2028 "}, ensure_ascii=False)]
    path = _write(tmp_path / f"texts{suffix}", "\n".join(rows) + "\n")
    assert _texts(path) == [("新片 上映", 1), ("", 2), ("", 3), ("", 4), ("决赛", 5)]


@pytest.mark.parametrize(("value", "text"), [(7, "7"), (0, "0"), (1.5, "1.5")])
def test_a_number_in_json_is_a_text(tmp_path, value, text):
    assert _texts(_write(tmp_path / "a.jsonl", json.dumps({"text": value}))) == [(text, 1)]


def test_half_a_character_in_json_becomes_text_that_can_be_written(tmp_path):
    path = _write(tmp_path / "a.jsonl", '{"text": "\\ud83d体育"}\n')
    ((text, _),) = _texts(path)
    assert text.encode("utf-8").decode("utf-8").endswith("体育")  # tokenizers refuse it otherwise


def test_all_bad_lines_of_json_are_told_at_once(tmp_path):
    rows = ['{"text": "甲"}', '{"text": ', '{"label": 3}', '["甲"]', '"甲"']
    path = _write(tmp_path / "a.jsonl", "\n".join(rows))
    with pytest.raises(DataError, match="expected one JSON object") as caught:
        read_texts(path)
    problems = caught.value.problems
    assert [int(re.search(r"jsonl:(\d+):", line).group(1)) for line in problems] == [2, 3, 4, 5]
    assert "text, title, sentence, content" in problems[1]
    assert '{"label": 3}' in problems[1]


@pytest.mark.parametrize("column", ["text", "title", "sentence", "content"])
def test_a_row_of_csv_is_a_text(tmp_path, column):
    content = f'id,{column}\r\n1,新片 上映\r\n2,"甲,""乙"""\r\n3,\r\n4\r\n'
    path = _write(tmp_path / "a.csv", b"\xef\xbb\xbf" + content.encode())
    assert _texts(path) == [("新片 上映", 2), ('甲,"乙"', 3), ("", 4), ("", 5)]


def test_an_empty_line_of_csv_keeps_its_place(tmp_path):
    path = _write(tmp_path / "a.csv", "text\n甲\n\n乙\n\n")
    assert _texts(path) == [("甲", 2), ("", 3), ("乙", 4), ("", 5)]


def test_a_quoted_line_end_in_csv_stays_in_its_text(tmp_path):
    path = _write(tmp_path / "a.csv", 'text,id\n"甲\n乙",1\n丙,2\n')
    assert [record.text for record in read_texts(path)] == ["甲\n乙", "丙"]


def test_a_text_of_csv_longer_than_the_csv_module_likes_is_read_whole(tmp_path):
    path = _write(tmp_path / "a.csv", "text\n" + "长" * 200_000 + "\n")
    assert [len(record.text) for record in read_texts(path)] == [200_000]


def test_a_quote_in_csv_that_is_never_closed_does_not_swallow_the_other_rows(tmp_path):
    path = _write(tmp_path / "a.csv", 'text\n甲\n"乙\n丙\n丁\n')
    with pytest.raises(DataError, match=r"a\.csv:\d+: "):
        read_texts(path)


@pytest.mark.parametrize(
    ("content", "found"),
    [("id,label\n1,2\n", "found id, label"), ("", "found an empty file")],
    ids=["other columns", "empty"],
)
def test_csv_without_text_column_is_refused(tmp_path, content, found):
    with pytest.raises(DataError, match=found) as caught:
        read_texts(_write(tmp_path / "a.csv", content))
    assert "expected a header with one of text, title, sentence, content" in str(caught.value)


@pytest.mark.parametrize("name", ["a.txt", "a.csv", "a.jsonl"])
def test_texts_in_gbk_are_refused_with_the_way_out(tmp_path, name):
    path = _write(tmp_path / name, "text\n雪豹队\n".encode("gbk"))
    with pytest.raises(DataError, match="iconv -f GB18030"):
        read_texts(path)
