import io
import json
import re
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from bert_lightning.data.columns import BY_NAME, Columns
from bert_lightning.data.texts import LONGEST_TEXT, read_texts, standard_input_to_file
from bert_lightning.errors import DataError


def _texts(path, columns=BY_NAME):
    return [(record.text, record.line) for record in read_texts(path, "auto", columns)[0]]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "gb18030"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["LF", "CRLF", "CR"])
def test_each_line_of_a_text_file_is_a_text_and_empty_ones_keep_their_place(write, end, encoding):
    lines = ["雪豹队 夺冠", "", "  ", '"新片"\t上映', "甲\u2028乙"]
    path = write("titles.txt", end.join(lines) + end, encoding)
    expected = [("雪豹队 夺冠", 1), ("", 2), ("", 3), ('"新片"\t上映', 4), ("甲\u2028乙", 5)]
    assert _texts(path) == expected
    assert all(record.label is None for record in read_texts(path, "auto", BY_NAME)[0])


@pytest.mark.parametrize("lines", ["\n", " \r\n", "\ufeff\n", "\n" * 600])
def test_a_file_of_only_blank_lines_has_an_empty_text_for_each(write, lines):
    expected = [("", number) for number in range(1, lines.count("\n") + 1)]
    assert _texts(write("a.txt", lines)) == expected


@pytest.mark.parametrize("name", ["a.txt", "a.csv", "a.jsonl", "a.json"])
def test_an_empty_file_is_refused_by_name(write, name):
    with pytest.raises(DataError, match=rf"{re.escape(name)}: expected text data – found an empty"):
        _texts(write(name, ""))


@pytest.mark.parametrize("suffix", [".jsonl", ".json"])
@pytest.mark.parametrize("column", ["text", "title", "sentence", "content"])
def test_a_line_of_json_is_a_text_and_empty_ones_keep_their_place(write, column, suffix):
    rows = [json.dumps({"id": 1, column: "新片 上映"}), "", json.dumps({column: ""})]
    rows += [json.dumps({column: None}), json.dumps({column: " 决赛 \u2028 "}, ensure_ascii=False)]
    path = write(f"texts{suffix}", "\n".join(rows) + "\n")
    assert _texts(path) == [("新片 上映", 1), ("", 2), ("", 3), ("", 4), ("决赛", 5)]


def test_objects_of_a_json_array_are_texts(write):
    path = write("a.json", json.dumps([{"text": "甲"}, {"text": ""}, {"text": "乙"}], indent=1))
    assert [text for text, _ in _texts(path)] == ["甲", "", "乙"]


@pytest.mark.parametrize(("value", "text"), [(7, "7"), (0, "0"), (1.5, "1.5")])
def test_a_number_in_json_is_a_text(write, value, text):
    assert _texts(write("a.jsonl", json.dumps({"text": value}))) == [(text, 1)]


def test_half_a_character_in_json_becomes_text_that_can_be_written(write):
    ((text, _),) = _texts(write("a.jsonl", '{"text": "\\ud83d体育"}\n'))
    assert text.encode("utf-8").decode("utf-8").endswith("体育")  # tokenizers refuse it otherwise


def test_all_bad_lines_of_json_are_told_at_once(write):
    rows = ['{"text": "甲"}', '{"text": ', '{"label": 3}', '["甲"]', '"甲"']
    path = write("a.jsonl", "\n".join(rows))
    with pytest.raises(DataError, match="expected one JSON object a line with 'text'") as caught:
        _texts(path)
    problems = caught.value.problems
    assert [int(re.search(r"jsonl:(\d+):", line).group(1)) for line in problems] == [2, 3, 4, 5]
    assert "label" in problems[1]


@pytest.mark.parametrize("column", ["text", "title", "sentence", "content"])
def test_a_row_of_csv_is_a_text(write, column):
    content = f'id,{column}\r\n1,新片 上映\r\n2,"甲,""乙"""\r\n3,\r\n'
    path = write("a.csv", content, "utf-8-sig")
    assert _texts(path) == [("新片 上映", 2), ('甲,"乙"', 3), ("", 4)]


def test_a_row_of_csv_without_a_text_is_told(write):
    with pytest.raises(DataError, match=r"a\.csv:3: expected 2 columns – found 1"):
        _texts(write("a.csv", "id,text\n1,甲\n2\n"))


def test_an_empty_line_of_csv_keeps_its_place(write):
    path = write("a.csv", "text\n甲\n\n乙\n\n")
    assert _texts(path) == [("甲", 2), ("", 3), ("乙", 4), ("", 5)]


def test_a_quoted_line_end_in_csv_stays_in_its_text(write):
    path = write("a.csv", 'text,id\n"甲\n乙",1\n丙,2\n')
    assert [text for text, _ in _texts(path)] == ["甲\n乙", "丙"]


def test_a_text_of_csv_longer_than_the_csv_module_likes_is_read_whole(write):
    path = write("a.csv", "text\n" + "长" * 200_000 + "\n")
    assert [len(text) for text, _ in _texts(path)] == [200_000]


def test_a_quote_in_csv_that_is_never_closed_does_not_swallow_the_other_rows(write):
    path = write("a.csv", 'text\n甲\n"乙\n丙\n丁\n')
    assert _texts(path) == [("甲", 2), ('"乙', 3), ("丙", 4), ("丁", 5)]


def test_a_row_of_tsv_is_a_text(write):
    assert _texts(write("a.tsv", "label\ttext_a\n体育\t甲,乙\n\t丙\n")) == [("甲,乙", 2), ("丙", 3)]


def test_a_row_of_parquet_is_a_text(tmp_path):
    parquet.write_table(pa.table({"title": ["甲", None, "乙"]}), tmp_path / "a.parquet")
    assert _texts(tmp_path / "a.parquet") == [("甲", 1), ("", 2), ("乙", 3)]


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_the_column_that_the_user_names_is_read_and_labels_are_not_looked_at(write, name):
    content = {"a.csv": "text,body\n甲,乙\n", "a.jsonl": '{"text": "甲", "body": "乙"}'}[name]
    ((text, _),) = _texts(write(name, content), Columns("body", "no such column"))
    assert text == "乙"


@pytest.mark.parametrize(
    ("content", "found"),
    [("id,kind\n1,2\n", "found id, kind"), ("甲\n乙\n", "found 甲")],
    ids=["other columns", "no header"],
)
def test_csv_without_text_column_is_refused(write, content, found):
    with pytest.raises(DataError, match=found) as caught:
        _texts(write("a.csv", content))
    assert "expected a column of texts" in str(caught.value)
    assert "data.text_column" in str(caught.value)


@pytest.mark.parametrize("name", ["a.txt", "a.csv"])
def test_texts_in_gb18030_are_read(write, name):
    assert _texts(write(name, "text\n雪豹队\n", "gbk"))[-1] == ("雪豹队", 2)


@pytest.mark.parametrize("name", ["a.txt", "a.csv"])
def test_a_line_that_is_no_text_is_told_with_its_place(write, name):
    content = "text\n甲\n乙\n丙\n".encode() + b"\xff\xfe\xfd\n"
    with pytest.raises(DataError, match=rf"{re.escape(name)}:5: expected utf-8 text"):
        _texts(write(name, content))


def test_standard_input_is_kept_in_a_file(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO("甲\r\n\n乙".encode()))
    monkeypatch.setattr("sys.stdin", stream)
    path = Path(standard_input_to_file())
    assert "standard_input" in path.name  # as faults are told by it
    assert _texts(path) == [("甲", 1), ("", 2), ("乙", 3)]
    path.unlink()


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", ""], ids=["LF", "CRLF", "CR", "none"])
@pytest.mark.parametrize("encoding", ["utf-8", "gb18030"])
def test_of_a_very_long_line_its_beginning_is_kept_and_it_is_counted(write, end, encoding):
    longest, longer = "甲" * LONGEST_TEXT, "甲" * LONGEST_TEXT + "乙" * 5
    path = write("a.txt", end.join([longest, *([longer, "", "丙", ""] if end else [])]), encoding)
    records, cut = read_texts(path, "auto", BY_NAME)
    assert [record.text for record in records] == [longest, *([longest, "", "丙"] if end else [])]
    assert cut == bool(end)


def test_a_text_behind_very_many_blanks_is_not_lost_unseen(write):
    path = write("a.txt", " " * (LONGEST_TEXT + 1) + "甲\n乙\n")
    records, cut = read_texts(path, "auto", BY_NAME)
    assert [record.text for record in records] == ["", "乙"]
    assert cut == 1


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.csv", "a.tsv"])
def test_a_very_long_text_of_a_row_is_cut_and_counted(write, name):
    text = "甲" * (LONGEST_TEXT + 1)
    rows = [json.dumps({"text": t}, ensure_ascii=False) for t in (text, "乙")]
    content = "\n".join(rows if "json" in name else ["text", text, "乙"])
    records, cut = read_texts(write(name, content), "auto", BY_NAME)
    assert [record.text for record in records] == [text[:-1], "乙"]
    assert cut == 1


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.tsv"])
def test_a_row_that_would_fill_the_memory_is_refused_with_its_place(write, name):
    rows = ['{"text": "甲"}', '{"text": "' if "json" in name else '"']
    path = write(name, "\n".join(rows) + "x" * (4 * LONGEST_TEXT + 1) + '"}\n')
    with pytest.raises(DataError, match=rf"{re.escape(name)}:2: expected at most 4,000,000 char"):
        read_texts(path, "auto", BY_NAME)


@pytest.mark.parametrize("end", [b"\n", b"\r"], ids=["LF", "CR"])
def test_a_line_of_fifty_megabytes_takes_no_such_memory(tmp_path, end):
    path = tmp_path / "a.txt"
    path.write_bytes("甲".encode() + end + b"x" * (50 << 20) + end + "乙".encode())
    tracemalloc.start()
    records, cut = read_texts(path, "auto", BY_NAME)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [(len(record.text), record.line) for record in records] == [
        *((1, 1), (LONGEST_TEXT, 2), (1, 3))
    ]
    assert cut == 1
    assert most < 50 << 20
