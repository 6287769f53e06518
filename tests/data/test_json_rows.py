import json

import pytest

OBJECTS = [{"text": f"新片{number}", "label": number % 2} for number in range(6)]


def _rows(records):
    return [(record.line, record.text, record.label) for record in records]


def _lines(*values):
    return "\n".join(v if isinstance(v, str) else json.dumps(v) for v in values) + "\n"


# --- one object a line ------------------------------------------------------------------------


def test_each_line_is_a_row(write, read):
    records, faults, blank = read(
        write(
            "a.jsonl",
            _lines({"text": "甲", "label": "体育"}, "", {"label": "娱乐", "text": " 乙\u2028丙 "}),
        )
    )
    assert _rows(records) == [(1, "甲", "体育"), (3, "乙\u2028丙", "娱乐")]
    assert (faults, blank) == ([], 1)


@pytest.mark.parametrize(
    ("label", "found"),
    [(3, "3"), (3.0, "3"), ("3", "3"), (["体育"], "体育"), (0, "0"), (" 体育 ", "体育")],
)
def test_labels_are_read_as_what_they_mean(write, read, label, found):
    records, _, _ = read(write("a.jsonl", _lines({"text": "甲", "label": label})))
    assert records[0].label == found


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        pytest.param('{"text": "甲", "label"', "one JSON object a line", id="cut"),
        pytest.param({"text": "甲"}, "one label – found None", id="no label"),
        pytest.param({"text": "甲", "label": None}, "one label – found None", id="null"),
        pytest.param({"text": "甲", "label": []}, "one label", id="empty list"),
        pytest.param({"text": "甲", "label": [1, 2]}, "one label", id="two labels"),
        pytest.param({"text": "甲", "label": {"a": 1}}, "one label", id="object"),
        pytest.param({"text": "", "label": 1}, "a title before the label", id="no text"),
        pytest.param({"label": 1}, "one JSON object a line", id="no text key"),
        pytest.param("[1]", "one JSON object a line", id="array"),
        pytest.param("甲\t体育", "one JSON object a line", id="no JSON"),
        pytest.param("[" * 100_000, "one JSON object a line", id="deep"),
    ],
)
def test_a_line_that_is_no_row_is_a_fault_with_its_place(write, read, row, expected):
    path = write("a.jsonl", _lines(*OBJECTS[:3], row, *OBJECTS[3:]))
    records, (fault,), _ = read(path)
    assert len(records) == 6
    assert str(fault).startswith(f"a.jsonl:4: expected {expected}")
    assert len(str(fault)) < 250


def test_half_a_character_becomes_text_that_can_be_written(write, read):
    path = write("a.jsonl", '{"text": "\\ud83d体育", "label": "\\udc00类"}\n')
    (record,), _, _ = read(path)
    assert record.text.encode("utf-8").decode("utf-8").endswith("体育")
    assert record.label.encode("utf-8").decode("utf-8").endswith("类")


# --- an array ---------------------------------------------------------------------------------

ARRAYS = [
    pytest.param(lambda rows: "[" + ",\n".join(rows) + "]\n", id="one object a line"),
    pytest.param(lambda rows: "[\n" + "\n,\n".join(rows) + "\n]", id="commas on their own"),
    pytest.param(lambda rows: "[" + ", ".join(rows) + "]", id="one line"),
    pytest.param(lambda rows: "[" + ",\r\n".join(rows) + ",\r\n]", id="comma at the end"),
]


@pytest.mark.parametrize("array", ARRAYS)
def test_each_object_of_an_array_is_a_row(write, read, array):
    records, faults, _ = read(write("a.json", array([json.dumps(row) for row in OBJECTS])))
    assert [(r.text, r.label) for r in records] == [(f"新片{n}", str(n % 2)) for n in range(6)]
    assert faults == []


@pytest.mark.parametrize("array", ARRAYS)
@pytest.mark.parametrize(
    "damaged",
    [
        pytest.param('{"text": "甲", "label"', id="cut"),
        pytest.param('{"text": 甲, "label": 1}', id="no quotes"),
        pytest.param('{"text": "甲" "label": 1}', id="no comma"),
        pytest.param('{"text": "甲"}', id="no label"),
        pytest.param('"甲"', id="string"),
        pytest.param("null", id="null"),
    ],
)
def test_a_damaged_object_is_a_fault_and_the_rest_is_read(write, read, array, damaged):
    rows = [json.dumps(row) for row in OBJECTS]
    path = write("a.json", array([*rows[:3], damaged, *rows[3:]]))
    records, (fault,), _ = read(path)
    assert [record.text for record in records] == [f"新片{n}" for n in range(6)]
    assert fault.source == "a.json"


def test_rows_and_faults_have_their_lines(write, read):
    rows = [json.dumps(row) for row in OBJECTS[:3]]
    path = write("a.json", "[\n" + f"{rows[0]},\n\n{rows[1]},\n{{bad}},\n{rows[2]}\n]")
    records, (fault,), _ = read(path)
    assert [record.line for record in records] == [2, 4, 6]
    assert str(fault).startswith("a.json:5: expected a JSON array of objects with 'text'")


def test_an_array_that_is_cut_says_so_after_its_rows(write, read):
    path = write("a.json", "[" + ",\n".join(json.dumps(row) for row in OBJECTS))
    records, faults, _ = read(path)
    assert len(records) == 6
    assert list(map(str, faults)) == [
        "a.json:6: expected the array to end with ] – found the end of the file"
    ]


def test_a_line_of_an_array_that_is_no_text_is_a_fault(write, read):
    rows = [json.dumps(row, ensure_ascii=False).encode() for row in OBJECTS]
    rows[2] = rows[2].replace("新".encode(), b"\xff")
    records, faults, _ = read(write("a.json", b"[" + b",\n".join(rows) + b"]"))
    assert len(records) == 5
    assert [fault.line for fault in faults] == [3]


def test_an_array_that_was_pasted_after_another_is_read_too(write, read):
    array = json.dumps(OBJECTS)
    records, faults, _ = read(write("a.json", f"{array}\n{array}\n"))
    assert len(records) == 12
    assert [str(fault).split(" – ")[0] for fault in faults] == [
        "a.json:2: expected nothing after the array"
    ]


def test_lines_that_are_called_an_array_are_read_with_a_fault(write, read):
    rows = [json.dumps({**row, "words": ["a", "b"]}) for row in OBJECTS]
    records, faults, _ = read(write("a.json", "\n".join(rows)), wanted="json")
    assert len(records) == 6
    assert [str(fault).split(" – ")[0] for fault in faults] == [
        "a.json:6: expected the array to end with ]"
    ]


@pytest.mark.parametrize("array", ARRAYS)
def test_the_first_object_may_be_damaged(write, read, array):
    rows = [json.dumps(row) for row in OBJECTS]
    records, faults, _ = read(write("a.json", array(['{"text": "甲", "label"', *rows])))
    assert len(records) == 6
    assert [fault.line for fault in faults] == [2 if array(["", ""]).startswith("[\n") else 1]


def test_an_object_of_too_many_levels_is_a_fault(write, read):
    rows = [json.dumps(row) for row in OBJECTS]
    deep = '{"text": ' + "[" * 100_000
    records, faults, _ = read(write("a.json", "[" + ",\n".join([rows[0], deep, *rows[1:]]) + "]"))
    assert len(records) == 6
    assert [fault.line for fault in faults] == [2]
