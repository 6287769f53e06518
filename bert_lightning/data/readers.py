"""Files on disk → records.

Takes a folder or a file, finds out which file is which split, and reads the two classic layouts of
THUCNews titles: ``title<SPACE or TAB>class name`` and ``title<TAB>class id`` beside a
``class.txt``. The label is what stands after the *last* separator, since most titles hold blanks
themselves.
"""

from __future__ import annotations

import atexit
import csv
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from bert_lightning.data.records import Record, Split
from bert_lightning.errors import DataError

CLASS_FILE = "class.txt"
SPLIT_NAMES: dict[Split, tuple[str, ...]] = {
    "train": ("train",),
    "val": ("val", "valid", "validation", "dev"),
    "test": ("test",),
}
_SUFFIXES = (".txt", ".tsv")
_PROBE_LINES = 1_000  # enough to tell TAB from blank
_LONGEST_FIELD = 2**31 - 1  # the csv module's own limit is 131,072 characters
_TEXT_COLUMNS = ("text", "title", "sentence", "content")


def find_files(path: Path, needs_train: bool = True) -> dict[Split, Path]:
    """Tell which file of a folder is which split.

    Args:
        path: A folder with train/val/test files (``dev`` and ``valid`` are taken for val), a folder
            with one data file, or a file.
        needs_train: False to evaluate only: a lone file is then both val and test.

    Returns:
        The file of each split that is there. A lone file to train on is returned as ``train``, to
        be split.

    Raises:
        DataError: The path is missing, or a folder holds no train file or several for one split.
    """
    lone: tuple[Split, ...] = ("train",) if needs_train else ("val", "test")
    if path.is_file():
        return dict.fromkeys(lone, path)
    if not path.is_dir():
        raise DataError(
            [f"data.path: expected a folder or a file – found nothing at {path.absolute()}"],
            "check the path; it is relative to the folder the command is started in",
        )
    candidates = sorted(
        file
        for file in path.iterdir()
        if file.suffix.lower() in _SUFFIXES and file.name != CLASS_FILE
    )
    found: dict[Split, Path] = {}
    problems = []
    for split, names in SPLIT_NAMES.items():
        files = [file for file in candidates if file.stem.lower() in names]
        if len(files) > 1:
            listed = ", ".join(file.name for file in files)
            problems.append(f"{path}: expected one file for {split} – found {listed}")
        if files:
            found[split] = files[0]
    if not found and len(candidates) == 1:
        found = dict.fromkeys(lone, candidates[0])
    if not problems and ("train" not in found if needs_train else not found):
        wanted = "train.txt" if needs_train else "val.txt or test.txt"
        listed = ", ".join(sorted(file.name for file in path.iterdir())) or "an empty folder"
        problems.append(f"{path.absolute()}: expected {wanted} (or .tsv) – found {listed}")
    if problems:
        raise DataError(problems, "name the files train.txt, val.txt (or dev.txt) and test.txt")
    return found


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (1-based line number, line without its end); LF, CRLF and CR all end a line.

    Raises:
        DataError: The file cannot be opened or is not UTF-8.
    """
    try:
        with path.open(encoding="utf-8-sig") as file:
            yield from enumerate((line.rstrip("\n") for line in file), start=1)
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise DataError(
            [f"{path}: expected UTF-8 text – found byte 0x{byte:02x}, which UTF-8 forbids here"],
            f"if it is a GBK file: iconv -f GB18030 -t UTF-8 {path.name} > utf8.txt",
        ) from error
    except OSError as error:
        raise DataError([f"{path}: expected a readable file – found {error.strerror}"]) from error


def read_class_names(folder: Path) -> list[str] | None:
    """Return the names in ``class.txt``, blank lines left out, or None if there is no such file."""
    file = folder / CLASS_FILE
    if not file.is_file():
        return None
    return [line.strip() for _, line in numbered_lines(file) if line.strip()]


def read_titles(path: Path) -> tuple[list[Record], list[str]]:
    """Read a ``title<separator>label`` file.

    The separator is TAB if most lines hold one, otherwise blank. Blank lines are skipped; they
    count in line numbers.

    Returns:
        The records in file order, and one problem line for each row that is not a record.

    Raises:
        DataError: The file is unreadable or holds no line of text.
    """
    probe = [line for _, line in islice(numbered_lines(path), _PROBE_LINES) if line.strip()]
    if not probe:
        raise DataError([f"{path}: expected lines of `title<TAB>label` – found an empty file"])
    separator = "\t" if 2 * sum("\t" in line for line in probe) >= len(probe) else None
    records, problems = [], []
    for number, line in numbered_lines(path):
        if not line.strip():
            continue
        record = _split_row(line, separator, path.name, number)
        if isinstance(record, Record):
            records.append(record)
        else:
            problems.append(f"{path}:{number}: {record} – found {line.strip()[:60]!r}")
    return records, problems


def _split_row(line: str, separator: str | None, source: str, number: int) -> Record | str:
    """Return the record in a line, or what was expected of it."""
    wanted = "TAB" if separator else "blank"
    row = line if separator else line.strip()
    parts = row.rsplit(separator, maxsplit=1)
    if len(parts) < 2:
        return f"expected a title, a {wanted} and a label"
    text, label = parts[0].strip(), parts[1].strip()
    if not label:
        return f"expected a label after the last {wanted}"
    if not text:
        return "expected a title before the label"
    return Record(text, label, source, number)


def read_texts(path: Path) -> list[Record]:
    """Read texts to predict, one record for each line or row, empty ones included.

    ``.jsonl`` and ``.json`` files hold one object a line, ``.csv`` files have a header; the text is
    in a column called text, title, sentence or content. Any other file is one text a line.

    Raises:
        DataError: Unreadable file, a line that is not JSON, or no text column.
    """
    if path.suffix.lower() in (".jsonl", ".json"):
        return list(_json_texts(path))
    if path.suffix.lower() == ".csv":
        return list(_csv_texts(path))
    return [Record(line.strip(), None, path.name, number) for number, line in numbered_lines(path)]


def _json_texts(path: Path) -> Iterator[Record]:
    problems = []
    for number, line in numbered_lines(path):
        if not line.strip():
            yield Record("", None, path.name, number)
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            problems.append(f"{path}:{number}: expected one JSON object – found {error}")
            continue
        column = _text_column(row) if isinstance(row, dict) else None
        if column is None:
            problems.append(
                f"{path}:{number}: expected an object with one of {', '.join(_TEXT_COLUMNS)}"
                f" – found {line.strip()[:60]}"
            )
        else:
            value = row[column]
            text = "" if value is None else str(value)
            # JSON can spell half a surrogate pair, which no UTF-8 file can hold
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            yield Record(text.strip(), None, path.name, number)
    if problems:
        raise DataError(problems)


def _csv_texts(path: Path) -> Iterator[Record]:
    csv.field_size_limit(_LONGEST_FIELD)
    reader = csv.reader((line + "\n" for _, line in numbered_lines(path)), strict=True)
    try:
        header = next(reader, [])
        column = _text_column(header)
        if column is None:
            raise DataError(
                [
                    f"{path}:1: expected a header with one of {', '.join(_TEXT_COLUMNS)}"
                    f" – found {', '.join(header) or 'an empty file'}"
                ]
            )
        index = header.index(column)
        # csv.DictReader would leave out empty lines
        for row in reader:
            text = row[index].strip() if index < len(row) else ""
            yield Record(text, None, path.name, reader.line_num)
    except csv.Error as error:
        raise DataError([f"{path}:{reader.line_num}: expected CSV – found {error}"]) from error


def _text_column(names: Iterable[str]) -> str | None:
    present = list(names)
    return next((name for name in _TEXT_COLUMNS if name in present), None)


def standard_input_to_file() -> str:
    """Write standard input to a file that is removed when the program ends; return its path."""
    descriptor, name = tempfile.mkstemp(prefix="bert_lightning_", suffix=".txt")
    atexit.register(Path(name).unlink, missing_ok=True)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(sys.stdin.buffer.read())
    return name
