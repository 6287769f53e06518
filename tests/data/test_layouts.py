import csv
import json

import pytest

from bert_lightning.data.columns import BY_NAME, Columns
from bert_lightning.data.layouts import detect_layout, labels_in, split_ends
from bert_lightning.errors import DataError

SEPARATORS = [
    pytest.param("\t", id="TAB"),
    pytest.param(" ", id="blank"),
    pytest.param(",", id="comma"),
    pytest.param("_!_", id="bang"),
]
ORDERS = [pytest.param(False, id="label last"), pytest.param(True, id="label first")]
ROWS = [(f"新片{number}上映", ("体育", "娱乐")[number % 2]) for number in range(60)]


def _join(pairs, separator, label_first):
    return [separator.join(pair[::-1] if label_first else pair) for pair in pairs]


def _facts(layout):
    return layout.form, layout.separator, layout.columns, layout.text, layout.label


@pytest.mark.parametrize("separator", SEPARATORS)
@pytest.mark.parametrize("label_first", ORDERS)
@pytest.mark.parametrize("kind", ["name", "id"])
def test_the_end_that_repeats_is_the_label(headlines, separator, label_first, kind):
    ids = {"体育": "0", "娱乐": "1", "家居": "2", "科技": "3"}
    pairs = [
        (text.replace(",", "，"), ids[label] if kind == "id" else label)
        for text, label in headlines
    ]
    layout = detect_layout(_join(pairs, separator, label_first), "a.txt")
    found = None if separator == " " else separator
    assert _facts(layout) == ("lines", found, 2, int(label_first), int(not label_first))
    assert "4 different values at the" in layout.reason


@pytest.mark.parametrize("separator", SEPARATORS)
@pytest.mark.parametrize("label_first", ORDERS)
def test_a_file_that_is_sorted_by_class_is_told_too(separator, label_first):
    lines = _join([(text, "体育") for text, _ in ROWS], separator, label_first)
    assert detect_layout(lines, "a.txt").label == int(not label_first)


@pytest.mark.parametrize("label_first", ORDERS)
def test_known_labels_tell_the_end_in_a_file_of_a_few_rows(label_first):
    lines = _join([("甲", "体育"), ("乙", "娱乐"), ("乙", "科技")], "\t", label_first)
    layout = detect_layout(lines, "a.txt", known={"体育", "娱乐", "科技"})
    assert layout.label == int(not label_first)
    assert layout.reason == "100% of its labels are known classes"


@pytest.mark.parametrize("label_first", ORDERS)
def test_an_id_is_the_label_where_nothing_repeats(label_first):
    lines = _join([("甲乙", "3"), ("丙丁", "5")], "\t", label_first)
    assert detect_layout(lines, "a.txt").label == int(not label_first)


@pytest.mark.parametrize("separator", SEPARATORS)
@pytest.mark.parametrize("label_first", ORDERS)
def test_a_word_that_all_titles_have_is_no_label(separator, label_first):
    texts = [f"图文{number}版" if separator != " " else f"图文 {number}" for number in range(60)]
    texts = [f"{text[:2]}{separator}{text[2:]}" for text in texts]
    if label_first:
        texts = [separator.join(text.split(separator)[::-1]) for text in texts]
    lines = _join(
        [(text, label) for text, (_, label) in zip(texts, ROWS, strict=True)],
        separator,
        label_first,
    )
    assert detect_layout(lines, "a.txt").label == int(not label_first)


@pytest.mark.parametrize("separator", SEPARATORS)
def test_titles_never_become_classes(separator):
    lines = [f"新片{number}上映{separator}决赛{number}开打" for number in range(150)]
    with pytest.raises(DataError, match="no end of the lines that repeats") as caught:
        detect_layout(lines, "a.txt")
    assert "class.txt or data.class_names" in str(caught.value)
    assert "data.layout" in str(caught.value)


def test_lines_of_texts_alone_are_refused():
    with pytest.raises(DataError, match=r"a\.txt: expected a title and a label in each line"):
        detect_layout(["雪豹队夺冠", "新片上映"], "a.txt")


def test_many_classes_are_found_if_they_repeat():
    lines = [f"新片{number}上映\t类{number % 60}" for number in range(240)]
    assert (
        "60 different values at the end of the first 240 lines"
        in detect_layout(lines, "a.txt").reason
    )


def test_a_tab_goes_before_commas_and_blanks():
    lines = [f"甲,乙 丙{text}\t{label}" for text, label in ROWS]
    assert _facts(detect_layout(lines, "a.txt"))[:2] == ("lines", "\t")


def test_a_comma_in_each_title_does_not_make_a_blank_file_one_of_commas():
    lines = [f"甲{number},乙{number} {'体育' if number % 2 else '娱乐'}" for number in range(60)]
    assert _facts(detect_layout(lines, "a.txt")) == ("lines", None, 2, 0, 1)


@pytest.mark.parametrize("fields", [4, 5])
def test_toutiao_rows_have_their_label_third_and_their_title_fourth(fields):
    lines = [
        "_!_".join(["6551", "102", "news_story", f"新片{n}", "词,词"][:fields]) for n in range(40)
    ]
    assert _facts(detect_layout(lines, "a.txt")) == ("lines", "_!_", fields, 3, 2)


HEADERS = [
    ("text,label", (",", 2, 0, 1)),
    ("label,title", (",", 2, 1, 0)),
    ("category,news", (",", 2, 1, 0)),
    ('"text","label"', (",", 2, 0, 1)),
    ("label\ttext_a", ("\t", 2, 1, 0)),
    ("id\ttitle\tlabel", ("\t", 3, 1, 2)),
    (",text,label", (",", 3, 1, 2)),
    ("标题,类别", (",", 2, 0, 1)),
    ("label|,|ques", ("|,|", 2, 1, 0)),
    ("id,sentence", (",", 2, 1, None)),
]


@pytest.mark.parametrize(("header", "facts"), HEADERS, ids=[header for header, _ in HEADERS])
def test_a_header_names_the_columns(header, facts):
    layout = detect_layout([header, "甲,体育"], "a.csv")
    assert _facts(layout) == ("table", *facts)
    assert "text in " in layout.reason


def test_columns_that_the_user_names_are_taken():
    lines = ["title,content,label,channel", "甲,乙,0,体育"]
    layout = detect_layout(lines, "a.csv", columns=Columns("content", "channel"))
    assert (layout.text, layout.label) == (1, 3)


def test_a_column_that_the_user_names_needs_a_header_or_keys():
    lines = ["甲\t体育", "乙\t娱乐"]
    with pytest.raises(DataError, match=r"a\.txt:1: expected a header with 'kind'") as caught:
        detect_layout(lines, "a.txt", columns=Columns(label="kind"))
    assert "data.label_column" in str(caught.value)


def test_a_table_of_several_labels_a_row_is_refused():
    lines = ["label|,|ques", *(f"体育,类{number}|,|新片{number}" for number in range(60))]
    with pytest.raises(DataError, match="expected one label a row"):
        detect_layout(lines, "a.csv")


# --- JSON -------------------------------------------------------------------------------------

OBJECTS = [{"sentence": f"新片{n}", "label": n % 3, "label_desc": f"类{n % 3}"} for n in range(9)]


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param([json.dumps(OBJECTS)], id="one line"),
        pytest.param(json.dumps(OBJECTS, indent=2).split("\n"), id="indented"),
        pytest.param(json.dumps(OBJECTS, indent=2).split("\n")[:22], id="cut sample"),
        pytest.param(["[", *(json.dumps(row) + "," for row in OBJECTS)], id="one object a line"),
    ],
)
def test_a_json_array_is_told(lines):
    layout = detect_layout(lines, "a.json")
    assert (layout.form, layout.text, layout.label) == ("json", "sentence", "label_desc")


def test_json_lines_are_told():
    layout = detect_layout([json.dumps(row) for row in OBJECTS], "a.json")
    assert (layout.form, layout.text, layout.label) == ("jsonl", "sentence", "label_desc")
    assert layout.shape == "one JSON object a line with 'sentence' and 'label_desc'"


def test_json_lines_without_label_have_none():
    layout = detect_layout(['{"id": 1, "sentence": "新片"}'], "a.json")
    assert layout.label is None
    assert "no column of labels" in str(layout)


def test_keys_that_the_user_names_are_taken():
    layout = detect_layout([json.dumps(OBJECTS[0])], "a.json", columns=Columns(label="label"))
    assert layout.label == "label"


@pytest.mark.parametrize("title", ["[组图] 新片", "[新片]", "{新片}"])
def test_a_title_in_brackets_is_no_json(title):
    lines = [f"{title}{number}\t体育" for number in range(40)]
    if title == "{新片}":
        lines[0] = "决赛\t体育"
    assert detect_layout(lines, "a.txt").form == "lines"


# --- data.layout ------------------------------------------------------------------------------

FORCED = [
    ("text_tab_label", ("lines", "\t", 2, 0, 1)),
    ("label_tab_text", ("lines", "\t", 2, 1, 0)),
    ("text_blank_label", ("lines", None, 2, 0, 1)),
    ("label_blank_text", ("lines", None, 2, 1, 0)),
    ("text_comma_label", ("lines", ",", 2, 0, 1)),
    ("label_comma_text", ("lines", ",", 2, 1, 0)),
    ("text_bang_label", ("lines", "_!_", 2, 0, 1)),
    ("label_bang_text", ("lines", "_!_", 2, 1, 0)),
    ("toutiao", ("lines", "_!_", 5, 3, 2)),
]


@pytest.mark.parametrize(("name", "facts"), FORCED, ids=[name for name, _ in FORCED])
def test_the_layout_that_the_user_names_is_taken_whatever_stands_there(name, facts):
    layout = detect_layout(["text,label", '{"a": 1}'], "a.txt", name)
    assert _facts(layout) == facts
    assert layout.reason == "as data.layout says"


@pytest.mark.parametrize(("name", "separator"), [("csv", ","), ("tsv", "\t")])
def test_a_table_that_the_user_names_has_a_header(name, separator):
    lines = [separator.join(row) for row in (["kind", "headline"], ["甲", "乙"])]
    layout = detect_layout(lines, "a.txt", name, Columns(label="kind"))
    assert _facts(layout) == ("table", separator, 2, 1, 0)
    with pytest.raises(DataError, match=r"a\.txt:1: expected a column of texts"):
        detect_layout(["甲,乙\t丙"], "a.txt", name)


@pytest.mark.parametrize("name", ["json", "jsonl"])
def test_json_that_the_user_names_must_be_json(name):
    assert detect_layout(['[{"text": "a"}', '{"text": "甲"}'], "a.txt", name).form == name
    with pytest.raises(DataError, match=r"a\.txt: expected JSON objects – found '甲"):
        detect_layout(["甲\t体育"], "a.txt", name, BY_NAME)


# --- parts ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "separator", "label_first", "found"),
    [
        pytest.param(" 甲\t乙\t体育 ", "\t", False, ("甲\t乙", "体育"), id="last TAB"),
        pytest.param("体育\t甲\t乙", "\t", True, ("甲\t乙", "体育"), id="first TAB"),
        pytest.param("  甲 乙  体育 ", None, False, ("甲 乙", "体育"), id="last blank"),
        pytest.param("体育  甲 乙", None, True, ("甲 乙", "体育"), id="first blank"),
        pytest.param("甲_!_乙_!_3", "_!_", False, ("甲_!_乙", "3"), id="last bang"),
        pytest.param("甲\t", "\t", False, None, id="no label"),
        pytest.param("甲\t体育\t", "\t", False, ("甲", "体育"), id="TAB at the end"),
        pytest.param("\t体育", "\t", False, ("", "体育"), id="no title"),
        pytest.param("甲", "\t", False, None, id="no TAB"),
        pytest.param(" 甲 ", None, True, None, id="no blank"),
    ],
)
def test_a_line_is_parted_at_one_end(line, separator, label_first, found):
    assert split_ends(line, separator, label_first) == found


def test_the_labels_of_lines_are_told_to_other_files():
    layout = detect_layout(["a\tb"], "a.txt", "label_tab_text")
    assert labels_in(["体育\t甲", "娱乐\t乙", "丙"], layout) == {"体育", "娱乐"}
    assert labels_in(["甲"], detect_layout(["text,label"], "a.csv")) == set()


@pytest.mark.parametrize(
    ("lines", "shape"),
    [
        (["甲\t0"], "a title, a TAB and a label"),
        (["0 甲"], "a label, a blank and a title"),
        (["text,label"], "a title, a comma and a label"),
        (["id,text"], "another column, a comma and a title"),
        (["_!_".join("12345")], "5 fields parted by _!_"),
        (['{"text": "a"}'], "one JSON object a line with 'text'"),
        (['[{"text": "a", "label": 1}]'], "a JSON array of objects with 'text' and 'label'"),
    ],
)
def test_a_row_is_described_for_messages(lines, shape):
    assert detect_layout(lines, "a").shape == shape


def test_json_lines_whose_first_is_damaged_are_told():
    lines = ['"sentence": "新片", "label": 1}', *(json.dumps(row) for row in OBJECTS)]
    assert detect_layout(lines, "a.json").form == "jsonl"


def test_a_json_array_whose_first_object_is_damaged_is_told():
    lines = ['[{"sentence": "新片" "label": 1},', json.dumps(OBJECTS)[1:]]
    assert detect_layout(lines, "a.json").form == "json"


def test_a_row_of_too_many_levels_does_not_hide_the_others():
    lines = ['[{"a": ' + "[" * 100_000 + ",", json.dumps(OBJECTS)[1:]]
    assert detect_layout(lines, "a.json").text == "sentence"


def test_known_labels_tell_the_separator_of_a_few_rows():
    lines = ["甲,乙 体育", "丙,丁 娱乐"]
    known = {"体育", "娱乐"}
    assert _facts(detect_layout(lines, "a.txt", known=known)) == ("lines", None, 2, 0, 1)


def test_a_header_of_tsv_may_stand_in_quotes():
    layout = detect_layout(['"text"\t"label"', '"甲"\t"体育"'], "a.tsv")
    assert _facts(layout) == ("table", "\t", 2, 0, 1)


def test_a_cell_longer_than_the_csv_module_likes_does_not_matter():
    csv.field_size_limit(131_072)
    layout = detect_layout(["text,label", f'"{"长" * 200_000}",体育'], "a.csv")
    assert layout.form == "table"
