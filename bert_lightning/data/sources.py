"""A data path → which files are train, val and test, and of what kind they are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bert_lightning.data.classes import is_class_file
from bert_lightning.data.files import is_hidden, name_of, refusal
from bert_lightning.data.records import SPLITS, Split
from bert_lightning.data.trees import class_folders
from bert_lightning.errors import DataError

SPLIT_NAMES: dict[Split, tuple[str, ...]] = {
    "train": ("train", "training"),
    "val": ("val", "valid", "validation", "dev"),
    "test": ("test",),
}
_TEXT_SUFFIXES = (".txt", ".tsv", ".csv", ".json", ".jsonl")
_SHARD = re.compile(r"-(\d+)-of-(\d+)$")
_ONE_IS_MEANT = "leave one of them there, or name it exactly train, val or test"
_DATASET_FILES = ("dataset_dict.json", "dataset_info.json")

Kind = Literal["text", "parquet", "tree", "dataset"]


@dataclass(frozen=True)
class Source:
    """Where the rows of a split are.

    Args:
        split: Which split.
        kind: ``text`` files, ``parquet`` files, a ``tree`` of one text a file, a ``dataset`` that
            was saved by Hugging Face `datasets` or is in its hub.
        paths: Files in order; the folder of a tree; none for a dataset.
    """

    split: Split
    kind: Kind
    paths: tuple[Path, ...]


def find_sources(path: Path, needs_train: bool = True) -> list[Source]:
    """Tell which file of a folder is which split.

    Args:
        path: A folder with train, val (``dev``, ``valid``) and test files, with a folder for each
            class, or with one data file; or a file. Parts of file names count: cnews.train.txt.
        needs_train: False to evaluate only: a lone file is then both val and test.

    Returns:
        One source for each split that is there, train first. A lone file to train on is returned
        as ``train``, to be split.

    Raises:
        DataError: The path is missing, or a folder holds no train file or several for one split.
    """
    lone: tuple[Split, ...] = ("train",) if needs_train else ("val", "test")
    if path.is_file():
        return [Source(split, _kind_of(path), (path,)) for split in lone]
    if not path.is_dir():
        raise DataError(
            [f"data.path: expected a folder or a file – found nothing at {path.absolute()}"],
            "check the path; it is relative to the folder the command is started in",
        )
    if any((path / name).is_file() for name in _DATASET_FILES):
        return [Source("train", "dataset", ())]
    candidates = [file for file in sorted(path.iterdir()) if _is_data(file)]
    found = _named_sources(candidates, path)
    if not found:
        found = _tree_sources(path, lone)
    if not found and len(candidates) == 1:
        found = [Source(split, _kind_of(candidates[0]), (candidates[0],)) for split in lone]
    if not found or (needs_train and found[0].split != "train"):
        wanted = "train.txt" if needs_train else "val.txt or test.txt"
        raise DataError(
            [
                f"{path.absolute()}: expected {wanted} (or .tsv, .csv, .json, .jsonl, .parquet)"
                f" – found {_listing(path)}"
            ],
            "name the files train.txt, val.txt (or dev.txt) and test.txt",
        )
    return found


def split_of(name: str) -> Split | None:
    """Return the split that a file or folder name speaks of: test of ``cnews.test``."""
    words = re.split(r"[^a-z]+", name.lower())
    return next(
        (split for split, names in SPLIT_NAMES.items() if any(word in names for word in words)),
        None,
    )


def _is_data(file: Path) -> bool:
    suffix = file.suffix.lower()
    is_text = suffix in _TEXT_SUFFIXES and not is_class_file(file)
    return file.is_file() and not is_hidden(file) and (is_text or suffix == ".parquet")


def _is_shard(file: Path) -> bool:
    return _kind_of(file) == "parquet" and _SHARD.search(file.stem) is not None


def _kind_of(file: Path) -> Kind:
    return "parquet" if file.suffix.lower() == ".parquet" else "text"


def _named_sources(candidates: Iterable[Path], folder: Path) -> list[Source]:
    by_split: dict[Split, list[Path]] = {}
    for file in candidates:
        split = split_of(file.stem)
        if split:
            by_split.setdefault(split, []).append(file)
    problems, sources = [], []
    for split in SPLITS:
        files = by_split.get(split, [])
        exact = [file for file in files if file.stem.lower() in SPLIT_NAMES[split]]
        files = exact or files
        problems += _file_problems(files, split, folder)
        if files:
            sources.append(Source(split, _kind_of(files[0]), tuple(files)))
    if problems:
        raise DataError(problems, _ONE_IS_MEANT)
    return sources


def _file_problems(files: Sequence[Path], split: Split, folder: Path) -> list[str]:
    """Tell files of which only one can be meant, and parts of Parquet that are not all there."""
    shards = [_SHARD.search(file.stem) for file in files]
    numbers = [(int(shard[1]), int(shard[2])) for shard in shards if shard]
    listed = ", ".join(name_of(Path(file.name)) for file in files)
    is_parquet = all(file.suffix.lower() == ".parquet" for file in files)
    if len(files) > 1 and not (is_parquet and len(numbers) == len(files)):
        return [f"{folder}: expected one file for {split} – found {listed}"]
    if is_parquet and numbers and numbers != [(n, len(files)) for n in range(len(files))]:
        return [f"{folder}: expected all parts of {split}, and no others – found {listed}"]
    return []


def _tree_sources(folder: Path, lone: Iterable[Split]) -> list[Source]:
    """Find split/class/file or class/file."""
    splits = {child: split_of(child.name) for child in sorted(folder.iterdir()) if child.is_dir()}
    problems, sources = [], []
    for wanted in SPLITS:
        children = [child for child, split in splits.items() if split == wanted]
        folders = [child for child in children if class_folders(child)]
        exact = [child for child in folders if child.name.lower() in SPLIT_NAMES[wanted]]
        folders = exact or folders
        if len(folders) > 1:
            listed = ", ".join(name_of(Path(child.name)) for child in folders)
            problems.append(f"{folder}: expected one folder for {wanted} – found {listed}")
        sources += [Source(wanted, "tree", (child,)) for child in folders]
    if problems:
        raise DataError(problems, _ONE_IS_MEANT)
    if sources:
        return sources
    if len(class_folders(folder)) > 1:
        return [Source(split, "tree", (folder,)) for split in lone]
    return []


def _listing(folder: Path) -> str:
    """Name what is in a folder, and what those files are that are no data."""
    names = []
    for child in sorted(folder.iterdir()):
        name, meaning = name_of(Path(child.name)), refusal(child) if child.is_file() else None
        names.append(f"{name} ({meaning})" if meaning else name)
    return (
        ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
        or "an empty folder"
    )
