import codecs
import gzip
import os
import pickle
import random
import zipfile
from pathlib import Path

import pytest

from bert_lightning.data.files import (
    check_encoding,
    digest_of,
    encoding_of,
    is_hidden,
    name_of,
    numbered_lines,
    refusal,
)
from bert_lightning.data.records import Fault
from bert_lightning.errors import ConfigError, DataError

ENDS = [pytest.param(end, id=name) for end, name in (("\n", "LF"), ("\r\n", "CRLF"), ("\r", "CR"))]


def _texts(path, encoding="auto"):
    return [text for _, text in numbered_lines(path, encoding)]


# --- lines ------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "gb18030"])
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("last", [True, False], ids=["ended", "not ended"])
def test_lines_are_the_same_whatever_the_encoding_and_the_line_ends(write, encoding, end, last):
    lines = ["雪豹队逆转", "", "  新片上映 ", "甲\u2028乙\u0085丙\x0b丁\x0c戊\x1c己", "决赛"]
    path = write("a.txt", end.join(lines) + (end if last else ""), encoding)
    assert list(numbered_lines(path)) == list(enumerate(lines, start=1))


@pytest.mark.parametrize("longest", [None, 3, 4, 5, 6, 100])
def test_mixed_line_ends_are_each_one_end(write, longest):
    path = write("a.txt", "甲\r\n乙\r丙\n丁\r\r\n戊\n\n己\n\r庚")
    texts = [text for _, text in numbered_lines(path, longest=longest)]
    assert texts == ["甲", "乙", "丙", "丁", "", "戊", "", "己", "", "庚"]


def test_lines_without_end_are_numbered_from_one(write):
    path = write("any.txt", "甲\n\n乙\u2028丙")
    assert list(numbered_lines(path)) == [(1, "甲"), (2, ""), (3, "乙\u2028丙")]


def test_a_line_that_is_no_text_is_a_fault_with_its_place_and_byte(write):
    path = write("a.txt", "新片\n".encode() * 3 + b"ab\xff\n" + "决赛\n".encode())
    lines = dict(numbered_lines(path, source="a.txt"))
    assert lines[4] == Fault("a.txt", 4, "utf-8 text", "byte 0xff at position 3 of the line")
    assert lines[5] == "决赛"


def test_a_wrong_byte_far_down_the_file_is_found(write):
    path = write("train.txt", "新片 娱乐\n".encode() * 5_000 + "地板 家居".encode("gbk"))
    faults = [line for _, line in numbered_lines(path) if isinstance(line, Fault)]
    assert [fault.line for fault in faults] == [5_001]


def test_lines_of_utf_8_pasted_into_a_gb18030_file_are_read_as_what_they_are(write):
    rows = ["雪豹队逆转云城队".encode("gb18030"), "新片上映".encode(), "决赛之夜".encode("gb18030")]
    assert _texts(write("a.txt", b"\n".join(rows))) == ["雪豹队逆转云城队", "新片上映", "决赛之夜"]


def test_a_folder_in_place_of_a_file_is_refused(tmp_path):
    with pytest.raises(DataError, match="expected a readable file"):
        list(numbered_lines(tmp_path))


def test_a_missing_file_is_refused_by_name(tmp_path):
    with pytest.raises(DataError, match=r"nowhere\.txt: expected a readable file"):
        list(numbered_lines(tmp_path / "nowhere.txt"))


# --- encodings --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "found"),
    [("utf-8", "utf-8"), ("utf-8-sig", "utf-8"), ("gbk", "gb18030"), ("gb18030", "gb18030")],
)
def test_the_encoding_is_told_from_the_bytes(write, headlines, written, found):
    text = "".join(f"{title}\t{label}\n" for title, label in headlines)
    assert encoding_of(write("a.txt", text, written)) == found


def test_a_file_of_ascii_is_utf_8(write):
    assert encoding_of(write("a.txt", "Leopards win\tsports\n")) == "utf-8"


@pytest.mark.parametrize("encoding", ["big5", "shift_jis"])
def test_a_file_in_an_encoding_that_is_not_known_is_refused_with_the_way_out(write, encoding):
    text = {"big5": "電影首映會的記者們\n", "shift_jis": "ひらがなとカタカナ\n"}
    path = write("a.txt", text[encoding] * 20, encoding)
    with pytest.raises(DataError, match="expected UTF-8 or GB18030 text") as caught:
        list(numbered_lines(path))
    assert str(path) in str(caught.value)
    assert "name its encoding in data.encoding" in str(caught.value)


def test_an_encoding_that_the_user_names_is_taken(write):
    path = write("a.txt", "電影首映會的記者們\n", "big5")
    assert _texts(path, "big5") == ["電影首映會的記者們"]


@pytest.mark.parametrize(
    "encoding", ["auto", "utf-8", "utf8", "GB18030", "gbk", "big5", "latin-1", "shift_jis"]
)
def test_encodings_built_on_ascii_are_accepted(encoding):
    check_encoding(encoding)


@pytest.mark.parametrize(
    "encoding", ["utf-16", "UTF-16-LE", "utf_32", "cp037", "base64", "no-such", ""]
)
def test_other_encodings_are_refused_with_what_was_typed(encoding):
    with pytest.raises(ConfigError, match=r"data\.encoding: expected auto, utf-8") as caught:
        check_encoding(encoding)
    assert repr(encoding) in str(caught.value)


# --- files that are no data -------------------------------------------------------------------

LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 134\n"
REFUSED = [
    pytest.param(LFS, r"a Git LFS pointer.*git lfs pull", id="Git LFS pointer"),
    pytest.param(b"\x00\x05\x16\x07" + bytes(80), r"macOS AppleDouble.*\._\*", id="AppleDouble"),
    pytest.param(gzip.compress(b"news"), "a gzip archive: unpack it", id="gzip"),
    pytest.param(b"7z\xbc\xaf\x27\x1c", "a 7z archive", id="7z"),
    pytest.param(b"Rar!\x1a\x07", "a rar archive", id="rar"),
    pytest.param(b"<!DOCTYPE html>\n<html>", "a saved web page", id="HTML page"),
    pytest.param(b"\xef\xbb\xbf\n <html><head>", "a saved web page", id="HTML after BOM"),
    pytest.param(b"404: Not Found", "a saved web page or error message", id="404"),
    pytest.param(b"", "an empty file", id="empty"),
    pytest.param(codecs.BOM_UTF8, "an empty file", id="BOM alone"),
    pytest.param("新片\t娱乐\n".encode("utf-16"), "UTF-16 text: save it as UTF-8", id="UTF-16"),
    pytest.param(codecs.BOM_UTF16_BE + "新".encode("utf-16-be"), "UTF-16", id="UTF-16 big-endian"),
    pytest.param(pickle.dumps(["a"], 4), "a Python pickle, which is never opened", id="pickle"),
    pytest.param(b"ab\x00\x01cd", "a binary file", id="binary"),
]


@pytest.mark.parametrize(("content", "reason"), REFUSED)
def test_a_file_that_is_no_data_is_refused_with_what_it_is(write, content, reason):
    path = write("train.txt", content)
    with pytest.raises(DataError, match=f"expected text data – found {reason}") as caught:
        list(numbered_lines(path))
    assert str(path) in str(caught.value)


def test_a_zip_archive_is_refused_with_what_it_is(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.txt", "w") as archive:
        archive.writestr("train.txt", "新片")
    with pytest.raises(DataError, match="a zip archive or office document: unpack it"):
        list(numbered_lines(tmp_path / "a.txt"))


@pytest.mark.parametrize("title", ["404路公交改线", "html入门", "PK 雪豹队", "BZ 新车"])
def test_a_title_that_resembles_a_mark_is_data(write, title):
    assert refusal(write("a.txt", f"{title}\t体育\n")) is None


@pytest.mark.parametrize(("name", "hidden"), [("._a.txt", True), (".DS_Store", True), ("a", False)])
def test_hidden_files_are_told_by_their_name(tmp_path, name, hidden):
    assert is_hidden(tmp_path / name) == hidden


def test_the_digest_is_that_of_the_content(write):
    first, same, other = (
        write(name, text) for name, text in (("a", "甲"), ("b", "甲"), ("c", "乙"))
    )
    assert digest_of(first) == digest_of(same) != digest_of(other)


# --- found by trying --------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["utf-8", "gb18030"])
@pytest.mark.parametrize("shift", range(4))
def test_one_line_longer_than_the_probe_has_an_encoding(write, encoding, shift):
    path = write("a.json", "a" * shift + "雪豹队逆转" * 500_000, encoding)
    assert path.stat().st_size > 4 << 20
    assert encoding_of(path) == encoding


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_pickles_of_each_protocol_are_told(write, protocol):
    reason = refusal(write("a.txt", pickle.dumps({"a": 1}, protocol)))
    assert reason.startswith("a Python pickle, which is never opened")


@pytest.mark.parametrize(
    "title", ["Not found: 雪豹队", "404 Not Found 新片上映", "Access denied 首映", "Bad gateway"]
)
def test_a_headline_that_begins_as_an_error_message_is_data(write, title):
    assert refusal(write("a.txt", f"{title}\t娱乐\n雪豹队\t体育\n")) is None
    assert refusal(write("a.csv", f"{title},娱乐\n" + "雪豹队,体育\n" * 50)) is None


@pytest.mark.parametrize("encoding", ["undefined", "a\0b", "punycode"])
def test_encodings_that_cannot_be_used_are_refused(encoding):
    with pytest.raises(ConfigError, match=r"data\.encoding"):
        check_encoding(encoding)


@pytest.mark.parametrize("encoding", ["utf-8", "gb18030"])
def test_names_of_files_are_text_whatever_bytes_they_are(encoding):
    assert name_of(Path(os.fsdecode("news/体育.txt".encode(encoding)))) == "news/体育.txt"
    assert name_of(Path(os.fsdecode(b"a\xff.txt"))) == "a\ufffd.txt"


@pytest.mark.parametrize("longest", [1, 2, 3, 7])
@pytest.mark.parametrize("seed", range(20))
def test_lines_that_are_cut_are_the_beginnings_of_the_whole_lines(tmp_path, seed, longest):
    draw = random.Random(seed)
    path = tmp_path / "a.txt"
    path.write_bytes(b"a" + bytes(draw.choice(b"ab\r\n") for _ in range(60)))
    whole = list(numbered_lines(path))
    expected = [(number, line[:longest]) for number, line in whole]
    assert list(numbered_lines(path, longest=longest)) == expected
