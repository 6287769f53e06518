"""Fixtures of the tests of data: files to read, a storage of their own, made-up headlines."""

import pytest

from bert_lightning.data.columns import BY_NAME
from bert_lightning.data.files import encoding_of
from bert_lightning.data.layouts import detect_layout
from bert_lightning.data.loading import LoadingSettings, load_news
from bert_lightning.data.readers import read_text_file, sample_lines
from bert_lightning.data.reading import ReadingSettings
from bert_lightning.data.records import BLANK_LINE, Fault
from bert_lightning.data.storage import Storage
from bert_lightning.demo.news import made_up_news


@pytest.fixture
def storage(tmp_path_factory):
    """A storage outside of the folder that the data is in."""
    return Storage(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def write(tmp_path):
    """Write a file below tmp_path: `write(name, text or bytes, encoding) -> path`."""

    def write(name, content, encoding="utf-8"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode(encoding))
        return path

    return write


@pytest.fixture
def read():
    """Read a text file as data is read: `read(path) -> (records, faults, blank lines)`."""

    def read(path, wanted="auto", columns=BY_NAME, known=(), encoding=None):
        encoding = encoding or encoding_of(path)
        layout = detect_layout(sample_lines(path, encoding), str(path), wanted, columns, known)
        items = list(read_text_file(path, path.name, encoding, layout))
        faults = [item for item in items if isinstance(item, Fault)]
        blank = items.count(BLANK_LINE)
        records = [item for item in items if item != BLANK_LINE and item not in faults]
        return records, faults, blank

    return read


@pytest.fixture(scope="session")
def headlines():
    """Two hundred made-up (title, class name) in turn, no title twice."""
    pairs = {record.text: record.label for record in made_up_news("test")}
    return list(pairs.items())[:200]


@pytest.fixture
def load(storage):
    """Load data: `load(path, trained, class_names=…, layout=…, on_bad_row=…, …) -> News`."""

    def load(path, trained=None, **settings):
        reading = {name: settings.pop(name) for name in ("layout", "encoding") if name in settings}
        names = tuple(settings.pop("class_names", ()))
        reading = ReadingSettings(**reading, class_names=names)
        return load_news(str(path), storage, LoadingSettings(reading, **settings), trained)

    return load


@pytest.fixture
def splits(write, tmp_path):
    """Write a folder: `splits(train=…, classes=…, separator=…, folder=…) -> path`.

    A split is a list of labels or of (title, label).
    """

    def splits(*, classes=None, separator="\t", folder="news", **parts):
        if classes is not None:
            text = classes if isinstance(classes, str) else "\n".join(classes) + "\n"
            write(f"{folder}/class.txt", text)
        for split, rows in parts.items():
            pairs = [
                row if isinstance(row, tuple) else (f"标题 {split}{number}", row)
                for number, row in enumerate(rows)
            ]
            lines = [f"{title}{separator}{label}\n" for title, label in pairs]
            write(f"{folder}/{split}.txt", "".join(lines))
        return tmp_path / folder

    return splits
