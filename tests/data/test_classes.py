import pytest

from bert_lightning.data.classes import find_class_list, is_class_file, read_class_file
from bert_lightning.errors import DataError

NAMES = ["体育", "娱乐", "家居"]


def _list_of(path):
    return read_class_file(path, "auto")


@pytest.mark.parametrize(
    "name",
    ["class.txt", "classes.txt", "label.json", "labels.txt", "class_names.txt", "Class-10.txt"],
)
def test_a_class_file_is_told_by_its_name(tmp_path, name):
    assert is_class_file(tmp_path / name)


@pytest.mark.parametrize("name", ["train.txt", "classified.txt", "class.csv", "._class.txt", "a"])
def test_other_files_are_no_class_files(tmp_path, name):
    assert not is_class_file(tmp_path / name)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("体育\n娱乐\n家居\n", id="names"),
        pytest.param("体育\n娱乐\n家居", id="not ended"),
        pytest.param("体育\r\n娱乐\r\n家居\r\n", id="CRLF"),
        pytest.param("体育\r娱乐\r家居", id="CR"),
        pytest.param("\ufeff体育\r\n 娱乐 \r\n\r\n家居\r\n\r\n\r\n", id="BOM and trailing blanks"),
        pytest.param('["体育", "娱乐", "家居"]', id="JSON list"),
        pytest.param('[\n  "体育",\n  "娱乐",\n  "家居"\n]\n', id="JSON list over lines"),
        pytest.param("['体育', '娱乐', '家居']\n", id="Python list"),
    ],
)
def test_names_alone_are_classes_in_their_order(write, content):
    found = _list_of(write("class.txt", content))
    assert (found.names, found.meanings, found.source) == (NAMES, {}, "class.txt")


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("0 体育\n1 娱乐\n2 家居\n", id="blank"),
        pytest.param("0\t体育\r\n1\t娱乐\r\n2\t家居\r\n\r\n", id="TAB"),
        pytest.param('{"体育": 0, "娱乐": 1, "家居": 2}', id="JSON name to id"),
        pytest.param('{"家居": 2, "体育": 0, "娱乐": 1}', id="JSON in another order"),
        pytest.param('{"0": "体育", "1": "娱乐", "2": "家居"}', id="JSON id to name"),
        pytest.param('{\n "体育": 0,\n "娱乐": 1,\n "家居": 2\n}', id="JSON over lines"),
        pytest.param(
            '{"label": "0", "label_desc": "体育"}\n{"label": "1", "label_desc": "娱乐"}\n'
            '{"label": "2", "label_desc": "家居"}\n',
            id="JSON lines",
        ),
    ],
)
def test_ids_beside_the_names_are_what_labels_stand_for(write, content):
    found = _list_of(write("class.json", content))
    assert found.names == NAMES
    assert found.meanings == {"0": "体育", "1": "娱乐", "2": "家居"}


def test_english_names_beside_the_ids_are_second_names(write):
    found = _list_of(write("class.txt", "0 体育 Sports \r\n1 娱乐 Stars\r\n2 家居 Home"))
    assert found.names == NAMES
    assert found.meanings["1"] == found.meanings["Stars"] == "娱乐"


def test_ids_of_json_lines_need_not_count_from_zero(write):
    rows = '{"label": "100", "label_desc": "news_sport"}\n{"label": 103, "label_desc": "news_car"}'
    assert _list_of(write("labels.json", rows)).meanings == {"100": "news_sport", "103": "news_car"}


def test_ids_are_sorted_as_numbers(write):
    mapping = ", ".join(f'"{number}": "类{number}"' for number in (10, 9, 2, 1, 0))
    names = _list_of(write("label.json", f"{{{mapping}}}")).names
    assert names == ["类0", "类1", "类2", "类9", "类10"]


def test_digits_alone_are_names(write):
    found = _list_of(write("class.txt", "0\n1\n2\n"))
    assert (found.names, found.meanings) == (["0", "1", "2"], {})


def test_a_class_file_in_gb18030_is_read(write):
    assert _list_of(write("class.txt", "体育\n娱乐\n家居\n", "gb18030")).names == NAMES


@pytest.mark.parametrize(
    ("content", "found"),
    [
        pytest.param("体育\n娱乐\n体育\n", "体育 several times", id="a name twice"),
        pytest.param("['体育', '娱乐']\n\n0 娱乐\n1 体育\n", "no list", id="two lists"),
        pytest.param("[1, 2]", "no list of a known form", id="list of numbers"),
        pytest.param("[体育, 娱乐]", "no list of a known form", id="list without quotes"),
        pytest.param('{"a": {"体育": 0}}', "no list of a known form", id="nested object"),
        pytest.param('{"体育": 0,', "no list of a known form", id="cut object"),
        pytest.param('{"a": 1}\n{"b": 2}\n', "no list of a known form", id="other JSON lines"),
        pytest.param("", "an empty file", id="empty"),
        pytest.param(" \n\n", "no list of a known form", id="blank lines"),
        pytest.param(b"\x00\x05\x16\x07", "AppleDouble", id="AppleDouble"),
    ],
)
def test_what_is_no_list_of_classes_is_refused_by_name(write, content, found):
    path = write("class.txt", content)
    with pytest.raises(DataError, match=found) as caught:
        _list_of(path)
    assert str(path) in str(caught.value)


def test_a_line_of_the_class_file_that_is_no_text_is_refused(write):
    path = write("class.txt", "体育\n娱乐\n科技\n家居\n".encode() + b"\xff\xfe\xfd\n")
    with pytest.raises(DataError, match=r"class\.txt:5: expected utf-8 text"):
        _list_of(path)


def test_without_class_file_there_are_no_names(tmp_path):
    assert find_class_list(tmp_path, "auto") is None


def test_a_second_list_in_another_order_is_kept_to_be_compared(write, tmp_path):
    write("class.txt", "体育\n娱乐\n家居\n")
    write("class_old.txt", "娱乐\n体育\n家居\n")
    write("class_same.txt", "体育\n娱乐\n家居\n")
    write("label.json", "{}")
    found = find_class_list(tmp_path, "auto")
    assert found.source == "class.txt"
    assert found.names == NAMES
    assert found.others == {"class_old.txt": ["娱乐", "体育", "家居"]}


# --- found by trying --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("2 家居\n0 体育\n1 娱乐\n", id="ids in another order"),
        pytest.param("体育 0\n娱乐 1\n家居 2\n", id="id last"),
        pytest.param('{"体育": "0", "家居": "2", "娱乐": "1"}', id="ids as strings"),
    ],
)
def test_ids_are_told_wherever_they_stand(write, content):
    found = _list_of(write("class.txt", content))
    assert found.names == NAMES
    assert found.meanings == {"0": "体育", "1": "娱乐", "2": "家居"}


def test_names_between_tabs_may_hold_blanks(write):
    found = _list_of(write("class.txt", "0\treal estate\t房产\n1\tworld news\t国际\n"))
    assert found.names == ["real estate", "world news"]
    assert found.meanings["国际"] == "world news"


def test_a_second_name_of_two_classes_stands_for_neither(write):
    found = _list_of(write("class.txt", "0 社会 society news\n1 国际 world news\n"))
    assert found.meanings == {"0": "社会", "society": "社会", "1": "国际", "world": "国际"}


def test_numbers_in_names_are_no_ids_where_the_rest_is_the_same(write):
    assert _list_of(write("class.txt", "类 0\n类 1\n")).names == ["类 0", "类 1"]


@pytest.mark.parametrize(
    "content",
    [
        pytest.param('{"label": 1}\n{"label": 2}\n5\n', id="number among objects"),
        pytest.param('{"label": 1}\n{"label": 2}\n["name"]\n', id="list among objects"),
        pytest.param('{"label": 1}\n{"label": 2}\n"a name"\n', id="string among objects"),
        pytest.param("[{[]: 1}]", id="key of a list"),
        pytest.param('{"a": ' * 50_000, id="too many levels"),
        pytest.param("[" * 50_000, id="too many brackets"),
    ],
)
def test_odd_lists_are_refused_and_not_crashed_on(write, content):
    with pytest.raises(DataError, match="found no list of a known form"):
        _list_of(write("class.json", content))
