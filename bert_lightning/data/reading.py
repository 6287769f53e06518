"""A data path → records as they stand in its files, read once and kept.

Finds the files, tells how they are laid out, and stores what was read under a name made of their
content. Judges nothing: labels are raw, faults are listed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bert_lightning.data.classes import ClassList, find_class_list
from bert_lightning.data.columnar import HUB_PREFIX, load_saved, read_dataset, read_parquet
from bert_lightning.data.columns import BY_NAME, Columns
from bert_lightning.data.files import AUTO, digest_of, encoding_of, name_of
from bert_lightning.data.layouts import Layout, LayoutName, detect_layout, labels_in
from bert_lightning.data.readers import read_text_file, sample_lines
from bert_lightning.data.record_table import Records, open_records, write_records
from bert_lightning.data.records import BLANK_LINE, SPLITS, Fault, Item, Record, Split
from bert_lightning.data.sources import SPLIT_NAMES, Source, find_sources, split_of
from bert_lightning.data.storage import Storage, open_json
from bert_lightning.data.trees import Tree
from bert_lightning.errors import DataError

READING_VERSION = 2  # raise it when the same file would be read differently
_FACTS = "reading.json"


@dataclass(frozen=True)
class ReadingSettings:
    """How files are read; each is told from the data unless the user fixes it.

    Args:
        encoding: ``auto``, utf-8, gb18030 or another encoding built on ASCII.
        layout: ``auto`` or a name of `bert_lightning.data.layouts.LayoutName`.
        columns: Columns of text and label where columns have names.
        class_names: Classes that the user lists; they help to tell labels from texts.
    """

    encoding: str = AUTO
    layout: LayoutName = "auto"
    columns: Columns = BY_NAME
    class_names: tuple[str, ...] = ()


TOLD_FROM_DATA = ReadingSettings()


@dataclass
class FileFacts:
    """What was found in the file or files of a split.

    Args:
        split: Which split.
        source: Name of the file.
        digest: SHA-256 of its content.
        encoding: What it was read as, empty for Parquet and datasets.
        layout: What it was taken for, and why.
        form: Form of the layout (see `bert_lightning.data.layouts.Layout`), or ``tree``.
        is_labelled: Whether its rows have labels at all.
        rows: Number of records.
        blank_lines: Number of lines that were skipped since they are blank.
    """

    split: Split
    source: str
    digest: str
    encoding: str = ""
    layout: str = ""
    form: str = "tree"
    is_labelled: bool = True
    rows: int = 0
    blank_lines: int = 0


@dataclass
class Reading:
    """All that stands in the files of a data path.

    Args:
        path: The path.
        records: Records of each split, with labels as they stand there.
        files: What was found in the files of each split.
        faults: Rows that are no records.
        class_list: The class file, if there is one.
        entry: Name of the stored entry, which changes with the content.
        fingerprint: The same for the content of the files alone, wherever they are.
    """

    path: str
    records: dict[Split, Records]
    files: list[FileFacts]
    faults: list[Fault]
    class_list: ClassList | None
    entry: str
    fingerprint: str


def read_data(
    path: str, storage: Storage, settings: ReadingSettings, needs_train: bool = True
) -> Reading:
    """Read all files of a data path, or open what an earlier process read of the same content.

    Args:
        path: A folder, a file, or ``hf://`` with the name of a dataset in the Hugging Face hub.
        storage: Where what was read is kept.
        settings: How to read.
        needs_train: False to evaluate only: a lone file is then both val and test.

    Raises:
        DataError: No files, or files that are no data. Rows that are none are listed instead.
    """
    if path.startswith(HUB_PREFIX):
        class_list, parts = None, _dataset_parts(path, settings.columns, needs_train)
    else:
        sources = find_sources(Path(path), needs_train)
        folder = Path(path) if Path(path).is_dir() else Path(path).parent
        data = [file for source in sources for file in source.paths]
        class_list = find_class_list(folder, settings.encoding, data)
        known = _known_labels(class_list, settings)
        if sources[0].kind == "dataset":
            parts = _dataset_parts(path, settings.columns, needs_train)
        else:
            parts = _parts(sources, folder, settings, known)
    files = [(part.facts.split, part.facts.source, part.state) for part in parts]
    key = {"version": READING_VERSION, "files": files}
    place = storage.entry("records", key, lambda draft: _store(parts, draft))
    return _opened(path, place, class_list)


def stored_corpus(
    name: str, version: str, storage: Storage, records: Mapping[Split, Callable[[], list[Record]]]
) -> Reading:
    """Return records that the package makes itself, in the form of what stands in files.

    Args:
        name: What they are called.
        version: Changes with the records.
        storage: Where they are kept.
        records: Makes the records of each split.
    """
    parts = [
        _Part(FileFacts(split, name, f"{version} {split}"), version, lambda make=make: iter(make()))  # type: ignore[misc]
        for split, make in records.items()
    ]
    place = storage.entry("records", {"corpus": version}, lambda draft: _store(parts, draft))
    reading = _opened(name, place, None)
    reading.fingerprint = version
    return reading


@dataclass
class _Part:
    """One split to be read: its facts so far, what its key depends on, and its items."""

    facts: FileFacts
    state: str
    items: Callable[[], Iterator[Item]]
    tree: Tree | None = None


def _known_labels(class_list: ClassList | None, settings: ReadingSettings) -> set[str]:
    """Return all labels that the classes can have in a file: names, second names and ids."""
    names = settings.class_names or (class_list.names if class_list else ())
    meanings = class_list.meanings if class_list else {}
    return {*names, *meanings, *(str(number) for number in range(len(names)))}


def _parts(
    sources: Iterable[Source], folder: Path, settings: ReadingSettings, known: set[str]
) -> list[_Part]:
    parts: list[_Part] = []
    for source in sources:
        if source.kind == "tree":
            parts.append(_tree_part(source, folder, settings.encoding))
        elif source.kind == "parquet":
            parts.append(_parquet_part(source, settings.columns))
        else:
            part, labels = _text_part(source, settings, known)
            parts.append(part)
            known = known or labels  # the labels of train tell those of a short val
    return parts


def _text_part(
    source: Source, settings: ReadingSettings, known: set[str]
) -> tuple[_Part, set[str]]:
    path = source.paths[0]
    lines = sample_lines(path, settings.encoding)
    layout = detect_layout(lines, name_of(path), settings.layout, settings.columns, known)
    encoding = encoding_of(path) if settings.encoding == AUTO else settings.encoding
    name = _file_name(path)
    facts = _described(FileFacts(source.split, name, digest_of(path), encoding), layout)
    state = f"{facts.digest} {encoding} {layout!r}"
    part = _Part(facts, state, lambda: read_text_file(path, name, encoding, layout))
    return part, labels_in(lines, layout)


def _file_name(path: Path) -> str:
    return name_of(Path(path.name))


def _described(facts: FileFacts, layout: Layout) -> FileFacts:
    facts.layout, facts.form, facts.is_labelled = str(layout), layout.form, layout.label is not None
    return facts


def _tree_part(source: Source, root: Path, encoding: str) -> _Part:
    (folder,) = source.paths
    tree = Tree(folder, root, encoding)
    facts = FileFacts(source.split, f"{name_of(Path(folder.name))}/", "", tree.encoding)
    facts.layout = f"{len(tree.files):,} files of one text in folders of their class"
    return _Part(facts, tree.state(), tree.read, tree)


def _parquet_part(source: Source, columns: Columns) -> _Part:
    layout, items = read_parquet(source.paths, _file_name, columns)
    digest = "".join(digest_of(path) for path in source.paths)
    name = ", ".join(map(_file_name, source.paths))
    facts = _described(FileFacts(source.split, name, digest), layout)
    return _Part(facts, f"{digest} {layout!r}", lambda: items)


def _dataset_parts(path: str, columns: Columns, needs_train: bool) -> list[_Part]:
    parts = []
    for split, (name, dataset) in _dataset_splits(path, needs_train).items():
        layout, items = read_dataset(dataset, name, columns)
        digest = hashlib.sha256(repr(dataset.features.get(layout.label)).encode())
        for file in dataset.cache_files:
            digest.update(digest_of(Path(file["filename"])).encode())
        if not dataset.cache_files:  # it is in memory
            digest.update(dataset._fingerprint.encode())
        facts = _described(FileFacts(split, name, digest.hexdigest()), layout)
        parts.append(_Part(facts, f"{facts.digest} {layout!r}", lambda items=items: items))  # type: ignore[misc]
    return parts


def _dataset_splits(path: str, needs_train: bool) -> dict[Split, tuple[str, Any]]:
    """Return name and rows of each split of a dataset.

    Raises:
        DataError: Several for one split, or none to train on.
    """
    loaded = load_saved(path)
    names = ", ".join(loaded)
    if len(loaded) == 1 and not any(map(split_of, loaded)):
        lone: tuple[Split, ...] = ("train",) if needs_train else ("val", "test")
        return {split: (name, dataset) for split in lone for name, dataset in loaded.items()}
    found: dict[Split, tuple[str, Any]] = {}
    for split in SPLITS:
        parts = {name: part for name, part in loaded.items() if split_of(name) == split}
        exact = {name: part for name, part in parts.items() if name in SPLIT_NAMES[split]}
        parts = exact or parts
        if len(parts) > 1:
            raise DataError([f"{path}: expected one split for {split} – found {', '.join(parts)}"])
        if parts:
            found[split] = next(iter(parts.items()))
    if not found or (needs_train and "train" not in found):
        raise DataError([f"{path}: expected a dataset with a train split – found {names}"])
    return found


def _store(parts: Iterable[_Part], draft: Path) -> None:
    faults: list[Fault] = []
    for part in parts:
        write_records(draft / f"{part.facts.split}.arrow", _records(part, faults))
        if part.tree:
            part.facts.digest = part.tree.digest
    content = {
        "files": [asdict(part.facts) for part in parts],
        "faults": [asdict(fault) for fault in faults],
    }
    (draft / _FACTS).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


def _records(part: _Part, faults: list[Fault]) -> Iterator[Record]:
    for item in part.items():
        if isinstance(item, Fault):
            faults.append(item)
        elif item == BLANK_LINE:
            part.facts.blank_lines += 1
        else:
            part.facts.rows += 1
            yield item


def _opened(path: str, place: Path, class_list: ClassList | None) -> Reading:
    content = open_json(place / _FACTS)
    files = [FileFacts(**facts) for facts in content["files"]]
    records = {file.split: open_records(place / f"{file.split}.arrow") for file in files}
    faults = [Fault(**fault) for fault in content["faults"]]
    fingerprint = _fingerprint(files, class_list)
    return Reading(path, records, files, faults, class_list, place.name, fingerprint)


def _fingerprint(files: Iterable[FileFacts], class_list: ClassList | None) -> str:
    """Return a SHA-256 over the content of the split files and of the class file."""
    content: list[Any] = [(file.split, file.digest) for file in files]
    content.append(asdict(class_list) if class_list else None)
    return hashlib.sha256(json.dumps(content, ensure_ascii=False).encode()).hexdigest()
