import pytest

from bert_lightning.data.columns import Columns


def _pairs(records):
    return [(record.text, record.label) for record in records]


@pytest.fixture
def rows(write, read):
    """Read a table: `rows(content) -> [(line, text, label)]`, no fault among them."""

    def rows(content, **options):
        records, faults, _ = read(write("a.csv", content), **options)
        assert faults == []
        return [(record.line, record.text, record.label) for record in records]

    return rows


@pytest.mark.parametrize(
    ("row", "text"),
    [
        pytest.param("甲,体育", "甲", id="plain"),
        pytest.param('"甲,乙",体育', "甲,乙", id="quoted comma"),
        pytest.param('"他说""好""",体育', '他说"好"', id="doubled quotes"),
        pytest.param('"甲","体育"', "甲", id="all quoted"),
        pytest.param("甲,乙,丙,体育", "甲,乙,丙", id="commas without quotes"),
        pytest.param('"雪豹"夺冠,体育', '"雪豹"夺冠', id="quote first"),
        pytest.param('"雪豹夺冠,体育', '"雪豹夺冠', id="quote never closed"),
        pytest.param('歌手"复出,体育', '歌手"复出', id="quote inside"),
        pytest.param('歌手"复出,归来",体育', '歌手"复出,归来"', id="quotes inside"),
        pytest.param("  甲 乙 , 体育 ", "甲 乙", id="blanks"),
    ],
)
def test_each_way_to_write_a_cell_gives_its_text(rows, row, text):
    others = "".join(f"新片{number},娱乐\n" for number in range(3))
    assert rows(f"text,label\n{others}{row}\n{others}")[3] == (5, text, "体育")


def test_titles_that_begin_with_a_quote_never_swallow_rows(rows, headlines):
    content = "".join(f'{label},"{title}\n' for title, label in headlines)
    found = rows(f"label,text\n{content}")
    assert [text for _, text, _ in found] == [f'"{title}' for title, _ in headlines]
    content = "".join(f'{label},"{title[:2]}"{title[2:]}\n' for title, label in headlines)
    assert len(rows(f"label,text\n{content}")) == len(headlines)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["LF", "CRLF", "CR"])
def test_a_quoted_cell_runs_over_lines(rows, end):
    content = f'text,label{end}甲,体育{end}"乙{end}丙,{end}{end}丁",娱乐{end}戊,体育{end}'
    assert rows(content) == [(2, "甲", "体育"), (3, "乙\n丙,\n\n丁", "娱乐"), (7, "戊", "体育")]


def test_a_quote_that_is_closed_a_hundred_lines_down_is_a_character(write, read):
    middle = "".join(f"新片{number},娱乐\n" for number in range(150))
    records, faults, _ = read(write("a.csv", f'text,label\n"甲,体育\n{middle}乙",体育\n'))
    assert faults == []
    assert len(records) == 152


def test_a_line_that_is_no_text_ends_a_quoted_cell(write, read):
    content = (
        "text,label\n新,体育\n影,体育\n".encode() + b'"\xe7\x94\xb2\n\xff\n' + "乙,体育".encode()
    )
    records, faults, _ = read(write("a.csv", content))
    assert _pairs(records) == [("新", "体育"), ("影", "体育"), ("乙", "体育")]
    assert [fault.line for fault in faults] == [4, 5]


def test_a_short_row_is_a_fault_with_its_place(write, read):
    records, faults, _ = read(write("a.csv", "id,text,label\n1,甲,体育\n2,乙\n3,丙,娱乐\n"))
    assert _pairs(records) == [("甲", "体育"), ("丙", "娱乐")]
    assert list(map(str, faults)) == ["a.csv:3: expected 3 columns – found 2: '2,乙'"]


def test_an_empty_text_or_label_is_a_fault(write, read):
    records, faults, _ = read(write("a.csv", "text,label\n,体育\n甲,\n乙,体育\n"))
    assert _pairs(records) == [("乙", "体育")]
    assert [fault.line for fault in faults] == [2, 3]


def test_blank_lines_are_counted(write, read):
    records, _, blank = read(write("a.csv", "\n\ntext,label\n\n甲,体育\n\n"))
    assert [record.line for record in records] == [5]
    assert blank == 4


def test_a_table_without_label_column_has_records_without_label(rows):
    assert rows("id,sentence\n1,甲\n2,\n") == [(2, "甲", None), (3, "", None)]


def test_columns_that_the_user_names_are_read(rows):
    content = "title,content,label,channel\n甲,乙,0,体育\n"
    assert rows(content, columns=Columns("content", "channel")) == [(2, "乙", "体育")]


def test_a_cell_longer_than_the_csv_module_likes_is_read_whole(rows):
    ((_, text, _),) = rows("text,label\n甲" + "长" * 200_000 + '"长,"体育"\n')
    assert len(text) == 200_003


def test_extra_tabs_of_a_tsv_are_part_of_the_text(rows):
    assert rows("label\ttext\n体育\t甲\t乙\n") == [(2, "甲\t乙", "体育")]


def test_quotes_of_a_tsv_are_those_of_csv(rows):
    found = rows('label\ttext\n体育\t"甲\t乙"\n娱乐\t"丙"丁\n')
    assert found == [(2, "甲\t乙", "体育"), (3, '"丙"丁', "娱乐")]


def test_bars_part_columns_and_leave_quotes_alone(rows):
    assert rows('label|,|ques\n体育|,|"甲",乙\n') == [(2, '"甲",乙', "体育")]


def test_rows_that_are_whole_one_by_one_are_not_joined_by_their_quotes(rows):
    assert rows('text,label\n"甲,体育\n乙",娱乐\n') == [(2, '"甲', "体育"), (3, '乙"', "娱乐")]
