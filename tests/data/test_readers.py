import csv
import io
import json

import pytest

from bert_lightning.data.records import Fault, Record
from bert_lightning.errors import DataError

SEPARATORS = [pytest.param("\t", id="TAB"), pytest.param(" ", id="blank")]
IDS = {"体育": "0", "娱乐": "1", "家居": "2", "科技": "3"}


def _good(outcome):
    records, faults, _ = outcome
    assert faults == []
    return records


# --- every layout -----------------------------------------------------------------------------


def _quoted(rows, delimiter=","):
    stream = io.StringIO()
    csv.writer(stream, delimiter=delimiter, lineterminator="\n").writerows(rows)
    return stream.getvalue().removesuffix("\n").split("\n")


def _objects(pairs):
    return [
        {"id": n, "sentence": text, "label": IDS[label], "label_desc": label}
        for n, (text, label) in enumerate(pairs)
    ]


def _json_lines(pairs):
    return [json.dumps(row, ensure_ascii=False) for row in _objects(pairs)]


LAYOUTS = {
    "title TAB name": lambda pairs: [f"{text}\t{label}" for text, label in pairs],
    "name TAB title": lambda pairs: [f"{label}\t{text}" for text, label in pairs],
    "title blank name": lambda pairs: [f"{text} {label}" for text, label in pairs],
    "name blank title": lambda pairs: [f"{label} {text}" for text, label in pairs],
    "title comma name": lambda pairs: [f"{text},{label}" for text, label in pairs],
    "name comma title": lambda pairs: [f"{label},{text}" for text, label in pairs],
    "title bang name": lambda pairs: [f"{text}_!_{label}" for text, label in pairs],
    "name bang title": lambda pairs: [f"{label}_!_{text}" for text, label in pairs],
    "toutiao": lambda pairs: [
        f"6{n}_!_10{IDS[label]}_!_{label}_!_{text}_!_词,词" for n, (text, label) in enumerate(pairs)
    ],
    "CSV title, name": lambda pairs: _quoted([("text", "label"), *pairs]),
    "CSV name, title": lambda pairs: _quoted([("label", "text"), *(p[::-1] for p in pairs)]),
    "CSV unquoted": lambda pairs: ["label,text", *(f"{label},{text}" for text, label in pairs)],
    "TSV title, name": lambda pairs: ["text\tlabel", *(f"{t}\t{label}" for t, label in pairs)],
    "TSV name, title": lambda pairs: ["label\ttext_a", *(f"{label}\t{t}" for t, label in pairs)],
    "bar comma bar": lambda pairs: ["label|,|ques", *(f"{label}|,|{t}" for t, label in pairs)],
    "JSON lines": _json_lines,
    "JSON array": lambda pairs: [json.dumps(_objects(pairs))],
    "JSON array, indented": lambda pairs: json.dumps(
        _objects(pairs), ensure_ascii=False, indent=4
    ).split("\n"),
}
TITLES = [
    "雪豹队,云城队,三比一",
    '"雪豹"夺冠',
    '歌手"复出"',
    "'新居'“改造”",
    "首映 礼  主创",
    "甲\u2028乙",
    "甲\u0085乙\x0b丙\x1c丁",
    "#1 ＡＢ２",
    "体育 娱乐",
    "404: 路公交",
    "[组图] 新片",
    "{新片}",
]


@pytest.fixture
def pairs(headlines):
    """Headlines, and titles that hold what parts columns."""
    return [*headlines[:90], *((title, list(IDS)[n % 4]) for n, title in enumerate(TITLES))]


@pytest.mark.parametrize(
    "form",
    [
        pytest.param("utf-8 LF ended", id="LF"),
        pytest.param("utf-8 CRLF ended", id="CRLF"),
        pytest.param("utf-8 CR cut", id="CR, not ended"),
        pytest.param("utf-8-sig CRLF cut", id="BOM, not ended"),
        pytest.param("gb18030 CRLF ended", id="GB18030"),
        pytest.param("gb18030 LF cut", id="GB18030, not ended"),
    ],
)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_same_rows(write, read, pairs, layout, form):
    encoding, end, last = form.split()
    end = {"LF": "\n", "CRLF": "\r\n", "CR": "\r"}[end]
    content = end.join(LAYOUTS[layout](pairs)) + (end if last == "ended" else "")
    records = _good(read(write("train.txt", content, encoding)))
    assert [(record.text, record.label) for record in records] == pairs


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_is_read_where_the_rows_are_sorted_by_class(write, read, headlines, layout):
    pairs = sorted(headlines, key=lambda pair: pair[1])
    records = _good(read(write("train.txt", "\n".join(LAYOUTS[layout](pairs)))))
    assert [(record.text, record.label) for record in records] == pairs


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if not name.startswith("JSON array")])
def test_blank_lines_change_no_row_and_are_counted(write, read, headlines, layout):
    lines = LAYOUTS[layout](headlines)
    content = "\n \n" + "\n\n".join(lines) + "\n\t\n\u3000\n"
    records, faults, blank = read(write("train.txt", content))
    assert faults == []
    assert [(record.text, record.label) for record in records] == headlines
    assert blank == len(lines) - 1 + 4
    assert records[-1].line == 2 * len(lines) + 1


@pytest.mark.parametrize("order", ["id last", "id first"])
def test_ids_are_labels_as_well(write, read, headlines, order):
    rows = [(text, IDS[label]) for text, label in headlines]
    lines = ["\t".join(row if order == "id last" else row[::-1]) for row in rows]
    records = _good(read(write("train.txt", "\n".join(lines))))
    assert [(record.text, record.label) for record in records] == rows


# --- lines ------------------------------------------------------------------------------------


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
        pytest.param("甲_!_乙", id="bang"),
        pytest.param("#1 ＡＢ２ 🎬", id="signs and emoji"),
    ],
)
def test_the_label_stands_after_the_last_separator(write, read, title, separator):
    rest = f"测试 之二{separator}娱乐\n" * 2
    path = write("train.txt", f"{title}{separator}体育\n{rest}")
    assert _good(read(path)) == [
        Record(title, "体育", "train.txt", 1),
        Record("测试 之二", "娱乐", "train.txt", 2),
        Record("测试 之二", "娱乐", "train.txt", 3),
    ]


def test_a_title_keeps_a_tab_before_the_last_one(write, read):
    path = write("train.txt", "甲\t乙\t体育\n丙\t娱乐\n")
    assert [(r.text, r.label) for r in _good(read(path))] == [("甲\t乙", "体育"), ("丙", "娱乐")]


def test_a_title_keeps_a_tab_after_the_first_one_where_the_label_is_first(write, read, headlines):
    titles = [f"{title}\t{title[:2]}" for title, _ in headlines]
    lines = [f"{label}\t{title}" for title, (_, label) in zip(titles, headlines, strict=True)]
    records = _good(read(write("train.txt", "\n".join(lines))))
    assert [r.text for r in records] == titles


@pytest.mark.parametrize("separator", SEPARATORS)
def test_blanks_around_title_and_label_are_left_out(write, read, separator):
    path = write("train.txt", f"  新片 上映 {separator} 娱乐  \n")
    assert [(r.text, r.label) for r in _good(read(path))] == [("新片 上映", "娱乐")]


@pytest.mark.parametrize("separator", SEPARATORS)
def test_blank_lines_are_counted_in_line_numbers(write, read, separator):
    content = f"\n甲{separator}体育\n\n   \n\t\n\u3000\n乙{separator}娱乐\n\n"
    records, faults, blank = read(write("train.txt", content))
    assert faults == []
    assert [(r.line, r.text) for r in records] == [(2, "甲"), (7, "乙")]
    assert blank == 6


def test_a_row_without_tab_in_a_tab_file_is_a_fault_with_its_place(write, read):
    records, faults, _ = read(write("train.txt", "甲\t体育\n\n乙 娱乐\n丙\t娱乐\n"))
    assert [r.line for r in records] == [1, 4]
    assert list(map(str, faults)) == [
        "train.txt:3: expected a title, a TAB and a label – found '乙 娱乐'"
    ]


def test_a_row_with_a_tab_in_a_blank_file_is_read(write, read):
    path = write("train.txt", "甲 体育\n乙 丙 娱乐\n丁\t娱乐\n")
    assert [(r.text, r.label) for r in _good(read(path))] == [
        ("甲", "体育"),
        ("乙 丙", "娱乐"),
        ("丁", "娱乐"),
    ]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        pytest.param(
            "\t体育", "a title before the label – found only the label '体育'", id="no title"
        ),
        pytest.param("   \t体育", "a title before the label", id="title of blanks"),
        pytest.param("\u3000\t体育", "a title before the label", id="title of U+3000"),
        pytest.param("甲\t", "a title, a TAB and a label – found '甲'", id="no label"),
        pytest.param("甲", "a title, a TAB and a label – found '甲'", id="no TAB"),
    ],
)
def test_a_row_that_lacks_a_part_is_a_fault(write, read, row, message):
    records, (fault,), _ = read(write("train.txt", f"新片\t娱乐\n{row}\n决赛\t体育\n"))
    assert [r.line for r in records] == [1, 3]
    assert f"train.txt:2: expected {message}" in str(fault)


def test_a_row_of_one_word_in_a_blank_file_is_a_fault(write, read):
    records, faults, _ = read(write("train.txt", "新片 娱乐\n   体育\n决赛 体育\n"))
    assert [r.line for r in records] == [1, 3]
    assert list(map(str, faults)) == [
        "train.txt:2: expected a title, a blank and a label – found '体育'"
    ]


def test_a_line_that_is_no_text_is_a_fault_among_the_rows(write, read):
    content = "新片\t娱乐\n".encode() * 3 + b"\xff\t0\n" + "决赛\t体育\n".encode()
    records, faults, _ = read(write("train.txt", content))
    assert [r.line for r in records] == [1, 2, 3, 5]
    assert faults == [Fault("train.txt", 4, "utf-8 text", "byte 0xff at position 1 of the line")]


def test_a_toutiao_row_of_too_few_fields_is_a_fault(write, read):
    row = "65_!_102_!_news_story_!_新片_!_\n"
    records, faults, _ = read(write("a.txt", row * 9 + "65_!_新片\n"))
    assert [r.label for r in records] == ["news_story"] * 9
    assert "a.txt:10: expected 5 fields parted by _!_ – found 2" in str(faults[0])


def test_the_found_part_of_a_fault_is_cut_to_a_screen_line(write, read):
    path = write("train.txt", "甲\t体育\n乙\t体育\n" + "长" * 5_000 + "\n")
    _, (fault,), _ = read(path)
    assert len(str(fault)) < 150


def test_a_title_of_a_hundred_thousand_characters_is_read_whole(write, read):
    path = write("train.txt", "长" * 100_000 + "\t体育\n")
    assert len(_good(read(path))[0].text) == 100_000


@pytest.mark.parametrize(
    ("content", "found"),
    [("", "an empty file"), ("\n \n\t\n", "none"), ("\ufeff", "an empty file")],
    ids=["empty", "blank", "BOM"],
)
def test_a_file_without_text_is_refused_by_name(write, read, content, found):
    path = write("train.txt", content)
    with pytest.raises(DataError, match=f"found {found}") as caught:
        read(path)
    assert str(path) in str(caught.value)


def test_a_long_file_of_blank_lines_is_refused_by_name(write, read):
    with pytest.raises(DataError, match=r"train\.txt: expected lines of text – found none"):
        read(write("train.txt", "\n" * 2_000))


# --- CSV without header -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        ('"甲,乙"', "甲,乙"),
        ('"他说""好"""', '他说"好"'),
        ('"甲"乙"', '"甲"乙"'),
        ('"甲", "乙"', '"甲", "乙"'),
        ('"甲', '"甲'),
        ("甲,乙", "甲,乙"),
    ],
)
@pytest.mark.parametrize("label_first", [True, False], ids=["label first", "label last"])
def test_quotes_of_csv_are_taken_off_a_whole_title(write, read, headlines, cell, text, label_first):
    rows = [*headlines[:40], (cell, "体育")]
    lines = [",".join(row[::-1] if label_first else row) for row in rows]
    assert _good(read(write("a.csv", "\n".join(lines))))[-1].text == text


@pytest.mark.parametrize("label_first", [True, False], ids=["label first", "label last"])
def test_quotes_of_csv_are_taken_off_labels_as_well(write, read, headlines, label_first):
    rows = [row[::-1] if label_first else row for row in headlines]
    content = "".join(f'"{first}","{second}"\n' for first, second in rows)
    records = _good(read(write("a.csv", content)))
    assert [(record.text, record.label) for record in records] == headlines
