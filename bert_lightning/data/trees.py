"""Folders of one text a file, a folder for each class → records: THUCNews' own form.

The whole of THUCNews is 740,000 files, so each is opened once and nothing is kept.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from bert_lightning.data.files import (
    AUTO,
    decode_line,
    encoding_of_bytes,
    is_hidden,
    name_of,
    refusal_of,
)
from bert_lightning.data.records import Fault, Item, Record
from bert_lightning.errors import DataError

_PROBED_FILES = 200


class Tree:
    """The texts below a folder of class folders.

    Args:
        folder: Its subfolders are named as the classes.
        root: What names in records and messages are relative to.
        encoding: Name of the encoding, or ``auto`` to tell it from files all over the tree.

    Raises:
        DataError: No files, or of no known encoding.
    """

    def __init__(self, folder: Path, root: Path, encoding: str) -> None:
        self.root = root
        self.files = [
            (file, label) for label in class_folders(folder) for file in _files_of(folder / label)
        ]
        if not self.files:
            raise DataError([f"{folder}: expected text files in folders of classes – found none"])
        self.encoding = self._probed_encoding(folder) if encoding == AUTO else encoding
        self._digest = hashlib.sha256()

    def _probed_encoding(self, folder: Path) -> str:
        step = max(1, len(self.files) // _PROBED_FILES)
        probe = b"\n".join(file.read_bytes() for file, _ in self.files[::step])
        return encoding_of_bytes(probe, str(folder))

    def state(self) -> str:
        """Return a hash of what the file system knows of the files, without opening them.

        A file cannot be changed without its change time, in nanoseconds.
        """
        digest = hashlib.sha256()
        for file, _ in self.files:
            info = file.stat()
            entry = f"{self._name(file)}:{info.st_size}:{info.st_mtime_ns}:{info.st_ctime_ns}\n"
            digest.update(entry.encode())
        return digest.hexdigest()

    @property
    def digest(self) -> str:
        """SHA-256 of names and content of all files; known once they have been read."""
        return self._digest.hexdigest()

    def read(self) -> Iterator[Item]:
        """Yield the text of each file, its lines joined by blanks, or the fault it has."""
        for file, label in self.files:
            content = file.read_bytes()
            name = self._name(file)
            self._digest.update(f"{name}:{len(content)}:".encode())
            self._digest.update(content)
            yield _item(content, name_of(Path(label)), name, self.encoding)

    def _name(self, file: Path) -> str:
        return name_of(file.relative_to(self.root))


def class_folders(folder: Path) -> list[str]:
    """Return the names of the subfolders that hold files, sorted."""
    with os.scandir(folder) as entries:
        names = sorted(
            entry.name for entry in entries if entry.is_dir() and not entry.name.startswith(".")
        )
    return [name for name in names if any(_entries(folder / name))]


def _entries(folder: Path) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_file() and not is_hidden(Path(entry.name)):
                yield entry.name


def _files_of(folder: Path) -> list[Path]:
    # 2.txt goes before 10.txt
    return [folder / name for name in sorted(_entries(folder), key=lambda name: (len(name), name))]


def _item(content: bytes, label: str, source: str, encoding: str) -> Record | Fault:
    meaning = refusal_of(content)
    if meaning:
        return Fault(source, 0, "a text", meaning)
    parts = []
    for number, line in enumerate(content.splitlines(), start=1):
        text = decode_line(line, encoding, source, number)
        if isinstance(text, Fault):
            return text
        parts.append(text.strip())
    text = " ".join(filter(None, parts))
    return Record(text, label, source, 1) if text else Fault(source, 1, "a text", "blanks")
