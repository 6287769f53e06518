"""A data path → records of train, val and test with their label table.

Finds the files (or makes the built-in corpus), reads them, settles the class names, splits what is
not split, and raises one error with every fault found. Knows nothing of tokenizers or tensors.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bert_lightning.data.checks import lone_labels, unknown_labels
from bert_lightning.data.readers import CLASS_FILE, find_files, read_class_names, read_titles
from bert_lightning.data.records import SPLITS, LabelTable, Record, Split
from bert_lightning.demo.news import CORPUS_CLASSES, CORPUS_VERSION, made_up_news
from bert_lightning.errors import CheckpointError, DataError

BUILTIN = "builtin"


@dataclass
class News:
    """All records of one data set.

    Args:
        name: The path, or what the built-in corpus is called.
        labels: Class names in order.
        records: Records of each split that exists.
        fingerprint: Changes if and only if the content of the files changes.
        notes: One line each about what a user should know (files without a class, how it was
            split).
    """

    name: str
    labels: LabelTable
    records: dict[Split, list[Record]]
    fingerprint: str
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Trained:
    """What a checkpoint says of the data that it was trained on.

    Args:
        class_names: Names in the model's order.
        fingerprint: Fingerprint of that data.
        holdout_ratio: How it was split where val or test had no file.
        seed: Seed of that split.
        must_be_same: False where the user named the data, so that it may be other data.
    """

    class_names: list[str]
    fingerprint: str
    holdout_ratio: float = 0.1
    seed: int = 0
    must_be_same: bool = True


def load_news(
    path: str,
    class_names: Sequence[str] | None = None,
    holdout_ratio: float = 0.1,
    seed: int = 0,
    trained: Trained | None = None,
) -> News:
    """Read a data set.

    Args:
        path: ``builtin``, a folder or a file.
        class_names: Names in order, or None to take them from ``class.txt`` or else from the data.
        holdout_ratio: Share of train rows for each of val and test where these have no file.
        seed: Seed of that split.
        trained: What the checkpoint to be evaluated or resumed expects, if there is one.

    Raises:
        DataError: Everything wrong with the files, in one error.
        CheckpointError: The data has other classes than the checkpoint, or is no longer the same.
    """
    if path == BUILTIN:
        news = _builtin_news(class_names)
        if trained:
            news.labels = _in_trained_order(news.labels, trained.class_names, news.name)
    else:
        news = _read_news(Path(path), class_names, holdout_ratio, seed, trained)
    if trained is None:
        return news
    if trained.must_be_same and trained.fingerprint != news.fingerprint:
        raise CheckpointError(
            f"data.path: expected the data that the checkpoint was trained on – {path} has changed"
            " since\ngive --data.path to use it as it is now"
        )
    return news


def _builtin_news(class_names: Sequence[str] | None) -> News:
    labels = LabelTable(class_names or CORPUS_CLASSES)
    records = {split: made_up_news(split) for split in SPLITS}
    problems = [line for rows in records.values() for line in unknown_labels(rows, labels)]
    if problems:
        raise DataError(problems, f"the built-in corpus has the classes {list(CORPUS_CLASSES)}")
    return News("built-in corpus", labels, records, f"built-in corpus {CORPUS_VERSION}")


def _read_news(
    path: Path,
    class_names: Sequence[str] | None,
    holdout_ratio: float,
    seed: int,
    trained: Trained | None,
) -> News:
    is_other = trained is not None and not _is_trained_data(path, trained)
    files = find_files(path, needs_train=not is_other)
    folder = next(iter(files.values())).parent
    from_file = read_class_names(folder)
    records: dict[Split, list[Record]] = {}
    problems: list[str] = []
    for split, file in files.items():
        records[split], bad_rows = read_titles(file)
        problems += bad_rows
    if problems:
        raise DataError(problems, "each line is `title<TAB>label` or `title label`")
    names = list(class_names) if class_names else from_file
    first = next(iter(records.values()))
    if trained and not names:
        _refuse_other_classes(records, trained.class_names, str(path))
    known = names or (trained.class_names if trained else None)
    labels, notes = _settle_labels(first, known)
    if trained:
        labels = _in_trained_order(labels, trained.class_names, str(path))
    problems = [line for rows in records.values() for line in unknown_labels(rows, labels)]
    if problems:
        data = "the checkpoint" if trained else "train"
        source = "data.class_names" if class_names else CLASS_FILE if from_file else data
        raise DataError(problems, f"the class names come from {source}: {', '.join(labels.names)}")
    if trained and not is_other:  # the rows that were not trained on
        notes += _hold_out(records, trained.holdout_ratio, trained.seed)
    elif not trained:
        notes += _hold_out(records, holdout_ratio, seed)
    return News(str(path), labels, records, _fingerprint(files, folder), notes)


def _is_trained_data(path: Path, trained: Trained) -> bool:
    if trained.must_be_same:
        return True
    try:
        files = find_files(path)
    except DataError:
        return False
    return _fingerprint(files, next(iter(files.values())).parent) == trained.fingerprint


def _in_trained_order(labels: LabelTable, trained: list[str], path: str) -> LabelTable:
    if not set(labels.names) <= set(trained):
        raise _other_classes(labels.names, trained, path)
    return labels.in_order_of(trained)


def _other_classes(names: Sequence[str], trained: Sequence[str], path: str) -> CheckpointError:
    return CheckpointError(
        f"ckpt_path: expected a checkpoint of the {len(names)} classes in {path}:"
        f" {', '.join(names)} – it has {len(trained)}: {', '.join(trained)}\n"
        "test it on data of its own classes, or say what the ids stand for in data.class_names"
    )


def _refuse_other_classes(
    records: dict[Split, list[Record]], trained: list[str], path: str
) -> None:
    """Tell other classes, which come in numbers, from a row whose label is missing."""
    counts = Counter(record.label for rows in records.values() for record in rows)
    names = sorted(label for label, count in counts.items() if label and count > 1)
    if not all(map(_is_id, names)) and not set(names) <= set(trained):
        raise _other_classes(names, trained, path)


def _settle_labels(records: list[Record], names: list[str] | None) -> tuple[LabelTable, list[str]]:
    """Return the label table (given names, or the sorted labels of the records) and notes."""
    numeric = 2 * sum(_is_id(record.label) for record in records) >= len(records)
    if names is None:
        problems = lone_labels(records)
        if problems:
            hint = f"list the classes in {CLASS_FILE} or data.class_names if they are right"
            raise DataError(problems, hint)
        found = {record.label for record in records if record.label is not None}
        return LabelTable(sorted(found, key=lambda name: (len(name) if numeric else 0, name))), []
    labels = LabelTable(names, names if numeric and not all(map(_is_id, names)) else None)
    used = {labels.index(record.label) for record in records} - {None}
    if len(used) == len(labels):
        return labels, []
    unused = [name for index, name in enumerate(labels.names) if index not in used]
    return labels, [
        f"{len(labels)} class names, but rows of {len(used)} in the data: none of"
        f" {', '.join(unused)}"
    ]


def _is_id(label: str | None) -> bool:
    return label is not None and label.isascii() and label.isdigit()


def _hold_out(records: dict[Split, list[Record]], ratio: float, seed: int) -> list[str]:
    """Split val and test off train where they have no file; in place. Returns what was done."""
    missing: list[Split]
    if "val" not in records and "test" not in records:
        missing = ["val", "test"]
    elif "val" not in records:
        missing = ["val"]
    else:
        return []
    for split in missing:
        records[split] = []
    by_label: dict[str | None, list[Record]] = defaultdict(list)
    for record in records["train"]:
        by_label[record.label].append(record)
    _refuse_small_classes(by_label, 1 + len(missing))
    taken: set[int] = set()
    for label in sorted(by_label, key=str):
        rows = by_label[label]
        random.Random(f"{seed} {label}").shuffle(rows)
        # at least one row stays in train
        count = max(1, min(round(ratio * len(rows)), (len(rows) - 1) // len(missing)))
        for position, split in enumerate(missing):
            part = rows[position * count : (position + 1) * count]
            records[split] += part
            taken.update(record.line for record in part)
    records["train"] = [record for record in records["train"] if record.line not in taken]
    sizes = ", ".join(f"{split} {len(records[split]):,}" for split in ("train", *missing))
    return [f"no file for {' and '.join(missing)}: split off train by class, seed {seed} ({sizes})"]


def _refuse_small_classes(by_label: dict[str | None, list[Record]], needed: int) -> None:
    problems = [
        f"{rows[0].where}: expected at least {needed} rows of class {label!r} to split the file"
        f" – found {count}"
        for label, count in Counter({k: len(v) for k, v in by_label.items()}).items()
        if count < needed and (rows := by_label[label])
    ]
    if problems:
        raise DataError(problems, "add rows, or give val and test files of your own")


def _fingerprint(files: dict[Split, Path], folder: Path) -> str:
    """Return a SHA-256 over the content of the split files and of the class file."""
    digest = hashlib.sha256()
    for name, file in [*files.items(), ("class", folder / CLASS_FILE)]:
        if file.is_file():
            digest.update(f"{name}:{file.stat().st_size}:".encode())
            with file.open("rb") as stream:
                while chunk := stream.read(1 << 20):
                    digest.update(chunk)
    return digest.hexdigest()
