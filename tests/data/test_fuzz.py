"""Damaged files: never a traceback, never a row that goes missing unseen, and harmless changes harm
nothing.

Each seed makes one file: a layout, then changes. What stands in it is counted here again, line by
line, without the code that is tested.
"""

import contextlib
import csv
import io
import json
import random
import re
import shutil
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import pytest

from bert_lightning.data.loading import LoadingSettings, load_news
from bert_lightning.data.reading import ReadingSettings, read_data
from bert_lightning.data.storage import Storage
from bert_lightning.demo.news import CORPUS_CLASSES, made_up_news
from bert_lightning.errors import SHOWN_PROBLEMS, BertLightningError, DataError

ROWS = 48
AWKWARD = (
    '"引号开头的标题，没有收尾',
    '他说"再见"就走了',
    "逗号,在标题里,有两个",
    "两  个空格和　全角空格",
    "Windows 7中文版 x64",
    "{花括号}与[方括号]",
)
JSON_SIGN = re.compile(r"\s*[\[{]*\s*\"(text|label|sentence)\":")


class Layout(NamedTuple):
    """A way to write pairs of text and label: name of the file, its form, and its rows."""

    file: str
    form: str
    rows: Callable


def _joined(separator, *order):
    def rows(pairs):
        return [separator.join((text, label)[place] for place in order) for text, label in pairs]

    return rows


def _ids(rows):
    def with_ids(pairs):
        return rows([(text, str(CORPUS_CLASSES.index(label))) for text, label in pairs])

    return with_ids


def _csv(header, *order, quoting=csv.QUOTE_MINIMAL, delimiter=","):
    def rows(pairs):
        written = []
        for cells in [*header, *([pair[place] for place in order] for pair in pairs)]:
            stream = io.StringIO()
            csv.writer(stream, quoting=quoting, delimiter=delimiter, lineterminator="\n").writerow(
                cells
            )
            written.append(stream.getvalue().removesuffix("\n"))
        return written

    return rows


def _several_lines(rows):
    def with_line_ends(pairs):
        return rows([(_broken(text), label) for text, label in pairs])

    return with_line_ends


def _broken(text):
    return text[:5] + "\n" + text[5:] if len(text) % 7 == 0 else text


def _json_lines(pairs):
    return [
        json.dumps({"id": number, "label": label, "sentence": text}, ensure_ascii=number % 3 == 0)
        for number, (text, label) in enumerate(pairs)
    ]


def _json_array(indent):
    def rows(pairs):
        array = [{"text": text, "label": label} for text, label in pairs]
        return json.dumps(array, ensure_ascii=False, indent=indent).split("\n")

    return rows


def _toutiao(pairs):
    return [f"65231{n}_!_110_!_{label}_!_{text}_!_" for n, (text, label) in enumerate(pairs)]


def _full_texts(rows):
    def long(pairs):
        return rows([(f"{text} {text}。" * 40, label) for text, label in pairs])

    return long


LAYOUTS = {
    "title tab id": Layout("train.txt", "lines", _ids(_joined("\t", 0, 1))),
    "title tab name": Layout("train.txt", "lines", _joined("\t", 0, 1)),
    "name tab title": Layout("train.tsv", "lines", _joined("\t", 1, 0)),
    "title blank name": Layout("train.txt", "lines", _joined(" ", 0, 1)),
    "id blank title": Layout("cnews.train.txt", "lines", _ids(_joined(" ", 1, 0))),
    "name comma title": Layout("train.txt", "lines", _joined(",", 1, 0)),
    "title comma name, quoted": Layout("train.csv", "lines", _csv([], 0, 1)),
    "all in quotes": Layout("train.csv", "lines", _csv([], 0, 1, quoting=csv.QUOTE_ALL)),
    "title bang id": Layout("train.txt", "lines", _ids(_joined("_!_", 0, 1))),
    "toutiao": Layout("train.txt", "lines", _toutiao),
    "full text": Layout("train.txt", "lines", _full_texts(_joined("\t", 1, 0))),
    "csv": Layout("train.csv", "csv", _csv([("text", "label")], 0, 1)),
    "csv of ids": Layout("train.csv", "csv", _ids(_csv([("label", "title")], 1, 0))),
    "csv, texts of two lines": Layout(
        "train.csv", "csv", _several_lines(_csv([("text", "label")], 0, 1))
    ),
    "csv, all in quotes": Layout(
        "train.csv", "csv", _csv([("category", "news")], 1, 0, quoting=csv.QUOTE_ALL)
    ),
    "tsv": Layout("train.tsv", "tsv", lambda pairs: ["label\ttext_a", *_joined("\t", 1, 0)(pairs)]),
    "json lines": Layout("train.json", "jsonl", _json_lines),
    "json array": Layout("train.json", "json", _json_array(2)),
    "json array in one line": Layout("train.json", "json", _json_array(None)),
}
REAL_LAYOUTS = {  # files of data/formats and their forms
    "01_title_tab_id/dev.txt": "lines",
    "02_title_tab_name.txt": "lines",
    "03_name_tab_title_sorted.txt": "lines",
    "04_english_name_tab_title.txt": "lines",
    "05_cnews_name_tab_fulltext.txt": "lines",
    "06_csv_header_text_label_crlf.csv": "csv",
    "08_csv_bom_header_segmented.csv": "csv",
    "09_csv_noheader_unquoted_commas.txt": "lines",
    "10_json_array_input_target.json": "json",
    "11_json_array_text_label_int/test.json": "json",
    "12_jsonl_label_name_text.json": "jsonl",
    "13_jsonl_tnews_clue/dev.json": "jsonl",
    "14_jsonl_tnews_fewclue.json": "jsonl",
    "15_jsonl_iflytek_label_des.json": "jsonl",
    "17_toutiao_bang_5_fields.txt": "lines",
    "18_toutiao_title_bang_id.txt": "lines",
    "20_gbk_id_space_title/cnews.train.txt": "lines",
    "21_bom_title_space_id_crlf.txt": "lines",
    "23_names_permuted/dev.txt": "lines",
    "25_val_equals_test/cnews.val.txt": "lines",
    "30_tsv_header_label_text_a.tsv": "tsv",
}


class Base(NamedTuple):
    """An undamaged file: its rows, the first of which may be a header."""

    name: str
    file: str
    form: str
    rows: list[str]


def own_pairs(rng):
    news = rng.sample(made_up_news("val"), ROWS - len(AWKWARD))
    pairs = [(record.text, record.label) for record in news]
    pairs += [(text, rng.choice(CORPUS_CLASSES)) for text in AWKWARD]
    rng.shuffle(pairs)
    return pairs


def own_base(rng, name):
    layout = LAYOUTS[name]
    return Base(name, layout.file, layout.form, layout.rows(own_pairs(rng)))


def real_base(name, formats):
    content = (formats / name).read_bytes()
    encoding = "gb18030" if name.startswith("20") else "utf-8-sig"
    rows = content.decode(encoding).replace("\r\n", "\n").removesuffix("\n").split("\n")
    suffix = name[name.rindex(".") :]
    return Base(name, f"train{suffix}", REAL_LAYOUTS[name], rows)


def any_base(rng, formats):
    names = [*LAYOUTS, *(REAL_LAYOUTS if formats else ())]
    name = rng.choice(names)
    return own_base(rng, name) if name in LAYOUTS else real_base(name, formats)


# changes of rows and bytes that leave every text as it was


def _blank_lines(rng, rows):
    return [
        part
        for row in rows
        for part in (*[rng.choice(["", "  ", "\t", "　"])] * rng.randrange(3), row)
    ]


def _trailing_blanks(rng, rows):
    return [row + rng.choice(["", " ", "   ", " \t", "　"]) for row in rows]


def _other_order(rng, rows):
    return rng.sample(rows, len(rows))


def harmless_file(rng, base):
    """Return the bytes of a file with other line ends, encoding, order and blanks."""
    rows, changes = base.rows, []
    has_header = base.form in ("csv", "tsv")
    header, rows = (rows[:1], rows[1:]) if has_header else ([], rows)
    for change in (_other_order, _trailing_blanks, _blank_lines):
        if (change is _other_order and base.form == "json") or rng.random() < 0.4:
            continue
        rows = change(rng, rows)
        changes.append(change.__name__)
    end = rng.choice(["\n", "\r\n", "\r", "mixed"])
    lines = "\n".join([*header, *rows]).split("\n")
    ends = [rng.choice(["\n", "\r\n"]) if end == "mixed" else end for _ in lines]
    ends[-1] = rng.choice(["", ends[-1]])
    text = "".join(line + ending for line, ending in zip(lines, ends, strict=True))
    encoding = rng.choice(["utf-8", "utf-8-sig", "gb18030"])
    return text.encode(encoding), [*changes, repr(end), encoding]


# changes that damage


def _cut(rng, data, other):
    return data[: rng.randrange(len(data) + 1)]


def _cut_front(rng, data, other):
    return data[rng.randrange(len(data) + 1) :]


def _merged(rng, data, other):
    return data + rng.choice([b"", b"\n"]) + other


def _spliced(rng, data, other):
    return data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]


def _merged_encodings(rng, data, other):
    return data + b"\n" + other.decode("utf-8", "replace").encode("gb18030")


def _encoded(encoding):
    def change(rng, data, other):
        return data.decode("utf-8", "replace").encode(encoding)

    change.__name__ = f"_as_{encoding}"
    return change


def _misread(rng, data, other):
    return data.decode("latin-1").encode("utf-8")


def _half_misread(rng, data, other):
    return data.decode("gb18030", "replace").encode("utf-8")


def _shuffled_bytes(rng, data, other):
    start = rng.randrange(len(data) + 1)
    part = bytearray(data[start : start + rng.choice([20, 500])])
    rng.shuffle(part)
    return data[:start] + bytes(part) + data[start + len(part) :]


def _flipped_bytes(rng, data, other):
    changed = bytearray(data)
    for _ in range(rng.choice([1, 5, 100]) if data else 0):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _inserted(*parts):
    def change(rng, data, other):
        for _ in range(rng.choice([1, 3, 20])):
            place = rng.randrange(len(data) + 1)
            data = data[:place] + rng.choice(parts) + data[place:]
        return data

    change.__name__ = f"_inserted_{parts[0]!r}"
    return change


def _lines_deleted(rng, data, other):
    return b"".join(line for line in data.splitlines(True) if rng.random() < 0.7)


def _lines_doubled(rng, data, other):
    return b"".join(line * rng.choice([1, 1, 2]) for line in data.splitlines(True))


def _lines_shuffled(rng, data, other):
    lines = data.splitlines(True)
    return b"".join(rng.sample(lines, len(lines)))


def _long_line(rng, data, other):
    row = rng.choice(data.splitlines() or [b""])
    return data + b"\n" + rng.choice([b"", b'"']) + row * (1 + 150_000 // (len(row) + 1)) + b"\n"


def _long_first_line(rng, data, other):
    return b'"' + rng.choice([b"a,", b"a", b"a\t"]) * 140_000 + b"\n" + data


def _deep_nesting(rng, data, other):
    deep = rng.choice(
        [b"[" * 200_000, b'{"a":' * 100_000, b'{"text":' + b"[" * 900 + b"]" * 900 + b',"label":1}']
    )
    lines = data.splitlines(True)
    place = rng.randrange(len(lines) + 1)
    return b"".join([*lines[:place], deep, b"\n", *lines[place:]])


DAMAGE = [
    *(_cut, _cut_front, _merged, _spliced, _merged_encodings, _misread, _half_misread),
    *map(_encoded, ("utf-8-sig", "gb18030", "utf-16", "utf-16-le")),
    *(_shuffled_bytes, _flipped_bytes),
    _inserted(b"\x00"),
    _inserted(b"\x01", b"\x0b", b"\x0c", b"\x1c", b"\x7f", b"\xc2\x85", b"\xe2\x80\xa8"),
    _inserted(b"\r", b"\n", b"\r\n", b"\n\r"),
    _inserted(b'"', b'""', b"'", b'",', b',"'),
    _inserted(b"\xff", b"\xfe", b"\x80", b"\xef\xbb\xbf", b"\xef\xbf\xbd", b"\xed\xa0\x80"),
    _inserted(b"\\ud800", b"\\u0000", b"\\", b"{", b"}", b"[", b"]", b":", b"\t", b",", b"_!_"),
    *(_lines_deleted, _lines_doubled, _lines_shuffled),
    *(_long_line, _long_first_line, _deep_nesting),
]


def damaged_file(rng, base, other):
    """Return the bytes of a file with one to three damages, and what they are called."""
    data = "\n".join(base.rows).encode()
    tail = "\n".join(other.rows).encode()
    changes = rng.choices(DAMAGE, k=rng.choice([1, 1, 2, 3]))
    for change in changes:
        data = change(rng, data, tail)
    return data, [change.__name__ for change in changes]


# what stands in a file, counted without the reader


def physical_lines(content):
    """Return {number: text} of the lines that are not blank; what is no text is kept as signs."""
    lines = re.split(rb"\r\n|\n|\r", content)
    texts = {number: line.decode("utf-8", "replace") for number, line in enumerate(lines, start=1)}
    return {number: text for number, text in texts.items() if text.strip("\ufeff").strip()}


def is_utf_8(line):
    return "\ufffd" not in line.decode("utf-8", "replace")


def letters(text):
    return "".join(sign for sign in text if sign.isalnum())


def check_account(reading, content, encoding):
    """Each line is a record, a fault, the header, or a part of a record's cell in quotes."""
    (facts,) = reading.files
    records = list(reading.records["train"])
    assert facts.rows == len(records)
    if facts.form == "json":
        check_array_account(reading, sound_text(content, facts.encoding))
        return
    lines = physical_lines(content)
    places = Counter(item.line for item in (*records, *reading.faults))
    assert set(places.values()) <= {1}, "a line was read twice"
    assert set(places) <= set(lines), "a row is said to be where there is none"
    missing = sorted(set(lines) - set(places))
    if facts.form == "table":
        header = min(set(lines) - {fault.line for fault in reading.faults})
        assert header == missing[0], "the header is not the first line"
        missing = missing[1:]
    by_line = {record.line: record for record in records}
    for number in missing:
        owner = by_line[max(place for place in places if place < number)]
        assert facts.form == "table", f"line {number} is lost"
        line = re.split(rb"\r\n|\n|\r", content)[number - 1]
        text = lines[number] if is_utf_8(line) else line.decode("gb18030")
        assert letters(text) in letters(f"{owner.label}{owner.text}{owner.label}"), (
            f"line {number} is lost"
        )


def sound_text(content, encoding):
    """Return the lines that are text; each of the others is a fault of its own."""
    lines = []
    for line in re.split(rb"\r\n|\n|\r", content):
        with contextlib.suppress(UnicodeDecodeError):
            lines.append(line.decode("utf-8" if is_utf_8(line) else encoding))
    return "\n".join(lines)


def check_array_account(reading, text):
    """Each whole object is a record, or one of a kind that is none; all else has a fault."""
    objects, rest = whole_objects(text)
    found = Counter(record.text for record in reading.records["train"])
    texts = Counter(
        row[key].strip()
        for row in objects
        for key in ("text", "sentence", "input")
        if isinstance(row.get(key), str) and row[key].strip()
    )
    missing = texts - found
    if missing:
        assert sum(missing.values()) <= len(reading.faults), f"{missing} are lost"
    extra = re.sub(r"[\s,\[\]\ufeff]", "", rest)
    assert reading.faults or not extra, f"{extra[:80]} is lost"


def whole_objects(text):
    """Return the JSON objects of a text, from left to right, and what stands between them."""
    decoder, objects, rest, position = json.JSONDecoder(), [], "", 0
    text = re.sub(r'(\{"a":){100,}', "deep nesting", text)  # each would be tried in turn
    while (start := text.find("{", position)) >= 0:
        rest += text[position:start]
        try:
            row, position = decoder.raw_decode(text, start)
            objects.append(row)
        except (ValueError, RecursionError):
            rest, position = rest + "{", start + 1
    return objects, rest + text[position:]


def check_message(error):
    lines = str(error).split("\n")
    assert "expected" in lines[0]
    assert "found" in str(error)
    assert len(lines) <= SHOWN_PROBLEMS + 4
    assert max(map(len, lines)) < 700
    assert "Traceback" not in str(error)


def check_damaged(folder, content, is_slight):
    """Read a damaged file and account for each of its lines; True if it was not refused."""
    try:
        reading = read_data(str(folder), Storage(folder / "cache"), ReadingSettings())
    except BertLightningError as error:
        check_message(error)
        return False
    check_account(reading, content, reading.files[0].encoding)
    records = reading.records["train"]
    signs = sum(
        JSON_SIGN.match(part) is not None for r in records for part in (r.text, str(r.label))
    )
    is_told = is_slight and len(records) > 2
    assert not is_told or 2 * signs <= len(records), "JSON is taken for lines"
    wanted = len(reading.records["train"]) + len(reading.faults)
    try:
        news = load_news(str(folder), Storage(folder / "cache"), LoadingSettings(on_bad_row="skip"))
    except BertLightningError as error:
        check_message(error)
        return True
    assert sum(map(len, news.records.values())) + len(news.dropped) == wanted
    return True


def check_damaged_seed(seed, folder, formats):
    rng = random.Random(seed)
    base, other = any_base(rng, formats), any_base(rng, formats)
    content, changes = damaged_file(rng, base, other)
    folder = folder / str(seed)
    folder.mkdir()
    (folder / base.file).write_bytes(content)
    try:
        return check_damaged(folder, content, len(changes) == 1)
    except Exception as error:
        raise AssertionError(f"seed {seed}: {base.name} and {other.name}, {changes}") from error


def pairs_of(folder):
    reading = read_data(str(folder), Storage(folder / "cache"), ReadingSettings())
    pairs = Counter((record.text, record.label) for record in reading.records["train"])
    return pairs, len(reading.faults)


def check_harmless_seed(seed, folder, formats):
    rng = random.Random(seed)
    base = any_base(rng, formats)
    content, changes = harmless_file(rng, base)
    before, after = folder / f"{seed} before", folder / f"{seed} after"
    for place, data in ((before, "\n".join(base.rows).encode()), (after, content)):
        place.mkdir()
        (place / base.file).write_bytes(data)
    assert pairs_of(after) == pairs_of(before), f"seed {seed}: {base.name} {changes}"


# trees, Parquet and class files


def tree_of(folder, rng, encoding):
    files = []
    for number, (text, label) in enumerate(own_pairs(rng)):
        place = folder / "train" / label
        place.mkdir(parents=True, exist_ok=True)
        file = place / f"{number}.txt"
        file.write_bytes("\r\n".join([text, "", text[::-1]]).encode(encoding))
        files.append(file)
    return files


def check_tree_seed(seed, folder):
    """Each file is a record or a fault."""
    rng = random.Random(seed)
    folder = folder / str(seed)
    files = tree_of(folder, rng, rng.choice(["utf-8", "gb18030"]))
    for file in rng.sample(files, rng.choice([1, 5, 20])):
        change = rng.choice(DAMAGE)
        file.write_bytes(change(rng, file.read_bytes(), rng.choice(files).read_bytes()))
    try:
        reading = read_data(str(folder), Storage(folder / "cache"), ReadingSettings())
    except DataError as error:
        check_message(error)
        return
    places = [item.source for item in (*reading.records["train"], *reading.faults)]
    assert sorted(places) == sorted(file.relative_to(folder).as_posix() for file in files)


def check_parquet_seed(seed, folder):
    """Each row is a record or a fault, or the file is refused."""
    import pyarrow as pa
    from pyarrow import parquet

    rng = random.Random(seed)
    folder = folder / str(seed)
    folder.mkdir()
    pairs = own_pairs(rng)
    table = pa.table({"label": [label for _, label in pairs], "text": [text for text, _ in pairs]})
    file = folder / "train.parquet"
    parquet.write_table(table, file, compression=rng.choice(["none", "snappy", "zstd"]))
    change = rng.choice([_cut, _cut_front, _flipped_bytes, _shuffled_bytes, _merged])
    file.write_bytes(change(rng, file.read_bytes(), b"PAR1"))
    try:
        reading = read_data(str(folder), Storage(folder / "cache"), ReadingSettings())
    except DataError as error:
        check_message(error)
        return
    assert len(reading.records["train"]) + len(reading.faults) == len(pairs)


CLASS_FILES = {
    "class.txt": "\n".join(CORPUS_CLASSES),
    "classes.txt": "\n".join(f"{n} {name} name{n}" for n, name in enumerate(CORPUS_CLASSES)),
    "label.json": json.dumps(dict(zip(CORPUS_CLASSES, range(4), strict=True)), ensure_ascii=False),
    "labels.json": "\n".join(
        json.dumps({"label": str(100 + n), "label_desc": name})
        for n, name in enumerate(CORPUS_CLASSES)
    ),
    "class_list.txt": str(list(CORPUS_CLASSES)),
}


def check_class_file_seed(seed, folder):
    rng = random.Random(seed)
    folder = folder / str(seed)
    folder.mkdir()
    base = own_base(rng, rng.choice(["title tab name", "title tab id", "csv"]))
    (folder / base.file).write_text("\n".join(base.rows), encoding="utf-8")
    name, other = rng.choices(list(CLASS_FILES), k=2)
    content = rng.choice(DAMAGE)(rng, CLASS_FILES[name].encode(), CLASS_FILES[other].encode())
    (folder / name).write_bytes(content)
    skipping = LoadingSettings(on_bad_row="skip")
    try:
        news = load_news(str(folder), Storage(folder / "cache"), skipping)
    except BertLightningError as error:
        check_message(error)
        return
    assert sum(map(len, news.records.values())) + len(news.dropped) == ROWS


CHECKS = {
    "damaged": check_damaged_seed,
    "harmless": check_harmless_seed,
    "trees": lambda seed, folder, formats: check_tree_seed(seed, folder),
    "Parquet": lambda seed, folder, formats: check_parquet_seed(seed, folder),
    "class files": lambda seed, folder, formats: check_class_file_seed(seed, folder),
}
FEW = {"damaged": 90, "harmless": 60, "trees": 10, "Parquet": 25, "class files": 25}
MANY = {"damaged": 1200, "harmless": 500, "trees": 60, "Parquet": 120, "class files": 120}


def check_seeds(kind, seeds, folder, formats):
    for seed in seeds:
        place = folder / kind
        place.mkdir(exist_ok=True)
        CHECKS[kind](seed, place, formats)
        shutil.rmtree(place)


@pytest.mark.parametrize("kind", CHECKS)
def test_damage_is_told_and_nothing_goes_missing(kind, tmp_path):
    check_seeds(kind, range(FEW[kind]), tmp_path, None)


@pytest.mark.slow
@pytest.mark.parametrize("kind", CHECKS)
def test_damage_of_two_thousand_files_is_told(kind, tmp_path):
    assert sum(MANY.values()) == 2_000
    check_seeds(kind, range(1_000, 1_000 + MANY[kind]), tmp_path, None)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["damaged", "harmless"])
def test_damage_of_real_files_is_told(kind, tmp_path, real_data):
    check_seeds(kind, range(10_000, 10_300), tmp_path, real_data / "formats")


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_is_read_as_it_was_written(name, tmp_path):
    """The changes above start from files that are read right."""
    rng = random.Random(name)
    pairs = own_pairs(rng)
    rows = LAYOUTS[name].rows(pairs)
    (tmp_path / LAYOUTS[name].file).write_text("\n".join(rows), encoding="utf-8", newline="")
    reading = read_data(str(tmp_path), Storage(tmp_path / "cache"), ReadingSettings())
    assert not reading.faults
    found = [(letters(record.text), record.label) for record in reading.records["train"]]
    if LAYOUTS[name].rows is LAYOUTS["full text"].rows:
        pairs = [(f"{text} {text}。" * 40, label) for text, label in pairs]
    has_ids = found[0][1].isdigit()
    wanted = [
        (letters(text), str(CORPUS_CLASSES.index(label)) if has_ids else label)
        for text, label in pairs
    ]
    assert found == wanted


def check_whole_program(seed, run_cli, tiny_bert_folder, tmp_path):
    rng = random.Random(seed)
    base, other = any_base(rng, None), any_base(rng, None)
    content, changes = damaged_file(rng, base, other)
    folder = tmp_path / str(seed)
    folder.mkdir()
    (folder / base.file).write_bytes(content)
    fit = ["fit", "--config", "debug.yaml", "--model.pretrained", tiny_bert_folder]
    few = [f"--trainer.limit_{stage}_batches=1" for stage in ("train", "val", "test")]
    skip = ["--data.on_bad_row", rng.choice(["error", "skip"])]
    result = run_cli(*fit, "--data.path", folder, *few, *skip)
    told = f"seed {seed}: {base.name} {changes}\n{result.err}"
    assert "Traceback" not in result.out + result.err, told
    if result.status:
        assert result.status == 1, told
        assert result.err.startswith("error: "), told
        check_message(result.err.removeprefix("error: ").rstrip("\n"))
    return result.status


def test_the_whole_program_tells_damage_on_one_screen(run_cli, tiny_bert_folder, tmp_path):
    statuses = [check_whole_program(seed, run_cli, tiny_bert_folder, tmp_path) for seed in range(4)]
    assert 1 in statuses


@pytest.mark.slow
def test_the_whole_program_tells_the_damage_of_sixty_files(run_cli, tiny_bert_folder, tmp_path):
    statuses = [
        check_whole_program(seed, run_cli, tiny_bert_folder, tmp_path) for seed in range(100, 160)
    ]
    assert set(statuses) == {0, 1}
