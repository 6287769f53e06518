"""A data path → records of train, val and test with their label table.

Settles the class names, splits what is not split, and judges every row: one error with all faults,
or, where the user says so, rows that are left out and listed. Knows nothing of tokenizers.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bert_lightning.data.checks import class_indices, leaked_rows, unknown_labels
from bert_lightning.data.holdout import hold_out
from bert_lightning.data.labels import (
    Classes,
    Trained,
    in_trained_order,
    leave_out_unlabelled,
    settle_classes,
)
from bert_lightning.data.reading import (
    TOLD_FROM_DATA,
    FileFacts,
    Reading,
    ReadingSettings,
    read_data,
    stored_corpus,
)
from bert_lightning.data.record_table import Records
from bert_lightning.data.records import SPLITS, Fault, LabelTable, Split, shown
from bert_lightning.data.storage import Storage
from bert_lightning.demo.news import CORPUS_CLASSES, CORPUS_VERSION, made_up_news
from bert_lightning.errors import CheckpointError, DataError

BUILTIN = "builtin"


@dataclass
class News:
    """All records of one data set.

    Args:
        name: The path, or what the built-in corpus is called.
        labels: Class names in order.
        records: Records of each split that exists, all of them with a class.
        fingerprint: Changes if and only if the content of the files changes.
        entry: Name under which the records are stored.
        files: What was found in the files.
        dropped: Rows that were left out, as the user allowed.
        notes: One line each about what a user should know (files without a class, how it was
            split).
    """

    name: str
    labels: LabelTable
    records: dict[Split, Records]
    fingerprint: str
    entry: str
    files: list[FileFacts]
    dropped: list[Fault] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def class_indices(self, split: Split) -> NDArray[np.int64]:
        """Return the class index of each record of a split, int64 of shape (records,)."""
        return class_indices(self.records[split], self.labels)


@dataclass(frozen=True)
class LoadingSettings:
    """What is done with rows that were read.

    Args:
        reading: How files are read.
        holdout_ratio: Share of train rows for each of val and test where these have no file.
        seed: Seed of that split.
        on_bad_row: ``error`` to refuse data with a row that cannot be used, ``skip`` to leave such
            rows out.
        drop_leaked: True to leave out rows whose headline stands in a later split too.
    """

    reading: ReadingSettings = TOLD_FROM_DATA
    holdout_ratio: float = 0.1
    seed: int = 0
    on_bad_row: Literal["error", "skip"] = "error"
    drop_leaked: bool = False


DEFAULTS = LoadingSettings()


def load_news(
    path: str,
    storage: Storage,
    settings: LoadingSettings = DEFAULTS,
    trained: Trained | None = None,
) -> News:
    """Read a data set.

    Args:
        path: ``builtin``, a folder, a file or a dataset of the Hugging Face hub.
        storage: Where what was read is kept.
        settings: What to do with the rows.
        trained: What the checkpoint to be evaluated or resumed expects, if there is one.

    Raises:
        DataError: Everything wrong with the files, in one error.
        CheckpointError: The data has other classes than the checkpoint, or is no longer the same.
    """
    if path == BUILTIN:
        news = _builtin_news(storage, settings.reading.class_names)
        if trained:
            news.labels = in_trained_order(news.labels, trained.class_names, news.name)
    else:
        news = _read_news(path, storage, settings, trained)
    if trained is None:
        return news
    if trained.must_be_same and trained.fingerprint != news.fingerprint:
        raise CheckpointError(
            f"data.path: expected the data that the checkpoint was trained on – {path} has changed"
            " since\ngive --data.path to use it as it is now"
        )
    return news


def read_any(path: str, storage: Storage, settings: ReadingSettings) -> Reading:
    """Return what stands in the files of a path, or the built-in corpus in the same form.

    Raises:
        DataError: No files, or files that are no data.
    """
    if path == BUILTIN:
        return _builtin(storage)
    with suppress(DataError):  # such as a missing train file, which only fit needs
        return read_data(path, storage, settings)
    return read_data(path, storage, settings, needs_train=False)


def _builtin(storage: Storage) -> Reading:
    version = f"built-in corpus {CORPUS_VERSION}"
    making = {split: partial(made_up_news, split) for split in SPLITS}
    return stored_corpus("built-in corpus", version, storage, making)


def _builtin_news(storage: Storage, class_names: Sequence[str]) -> News:
    labels = LabelTable(class_names or CORPUS_CLASSES)
    reading = _builtin(storage)
    problems = [
        fault for rows in reading.records.values() for fault in unknown_labels(rows, labels)
    ]
    if problems:
        hint = f"the built-in corpus has the classes {list(CORPUS_CLASSES)}"
        raise DataError(list(map(str, problems)), hint)
    return _news_of(reading, labels)


def _news_of(reading: Reading, labels: LabelTable) -> News:
    return News(
        reading.path,
        labels,
        dict(reading.records),
        reading.fingerprint,
        reading.entry,
        reading.files,
        notes=[
            f"{file.source}: blank lines skipped: {file.blank_lines:,}"
            for file in reading.files
            if file.blank_lines
        ],
    )


def _read_news(
    path: str, storage: Storage, settings: LoadingSettings, trained: Trained | None
) -> News:
    reading, is_other = _read(path, storage, settings.reading, trained)
    notes = leave_out_unlabelled(reading)
    classes = settle_classes(reading, settings.reading.class_names, trained)
    news = _news_of(reading, classes.labels)
    news.notes += notes + classes.notes
    _judge(news, reading.faults, classes, settings.on_bad_row)
    if trained and not is_other:  # the rows that were not trained on
        news.notes += hold_out(news.records, trained.holdout_ratio, trained.seed)
    elif not trained:
        news.notes += hold_out(news.records, settings.holdout_ratio, settings.seed)
    if settings.drop_leaked and not is_other:  # data to evaluate may be val and test at once
        _drop_leaked(news)
    return news


def _read(
    path: str, storage: Storage, settings: ReadingSettings, trained: Trained | None
) -> tuple[Reading, bool]:
    """Return what was read, and whether it is other data than the checkpoint was trained on."""
    if trained is None or trained.must_be_same:
        return read_data(path, storage, settings), False
    with suppress(DataError):  # such as a missing train file, which other data does not need
        reading = read_data(path, storage, settings)
        if reading.fingerprint == trained.fingerprint:
            return reading, False
    return read_data(path, storage, settings, needs_train=False), True


def _judge(news: News, bad_rows: Sequence[Fault], classes: Classes, on_bad_row: str) -> None:
    """Leave out the rows that cannot be used, or refuse the data for them.

    Args:
        news: The data; changed in place.
        bad_rows: Rows that are no records.
        classes: The classes and where they come from.
        on_bad_row: ``error`` or ``skip``.
    """
    told = {lone.place for lone in classes.lone}
    unknown = [
        fault
        for records in news.records.values()
        for fault in unknown_labels(records, news.labels)
        if fault.place not in told
    ]
    faults = [*bad_rows, *classes.lone, *unknown]
    if faults and on_bad_row == "error":
        names = f"the class names come from {classes.source}: {', '.join(news.labels.names)}\n"
        way_out = "mend the rows, or leave them out with data.on_bad_row: skip"
        if classes.lone:
            names += "list rare classes in class.txt or data.class_names\n"
        raise DataError(
            list(map(str, faults)), (names if classes.lone or unknown else "") + way_out
        )
    for split, records in news.records.items():
        news.records[split] = records.select(news.class_indices(split) >= 0)
    empty = [split for split, records in news.records.items() if not len(records)]
    if empty:
        problems = [f"{news.name}: expected rows of {split} – found none" for split in empty]
        raise DataError([*problems, *map(str, faults)])
    if faults:
        news.dropped += faults
        news.notes.append(f"{len(faults):,} bad rows left out (data.on_bad_row: skip)")


def _drop_leaked(news: News) -> None:
    for split, leaked in leaked_rows(news.records).items():
        records = news.records[split]
        news.dropped += [
            Fault(record.source, record.line, "a title that no later split has", shown(record.text))
            for record in records.select(leaked)
        ]
        news.records[split] = records.select(~leaked)
        if leaked.all() and len(leaked):
            raise DataError(
                [f"{news.name}: expected rows of {split} that later splits lack – found none"],
                "leave data.drop_leaked out, or give files with other titles",
            )
        if leaked.any():
            news.notes.append(
                f"{np.count_nonzero(leaked):,} rows of {split} left out, since later splits have"
                " their titles (data.drop_leaked)"
            )
