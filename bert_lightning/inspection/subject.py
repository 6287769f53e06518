"""What was read → the subject of an inspection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from bert_lightning.data.encoding import EncodedRows
from bert_lightning.data.labels import settle_classes
from bert_lightning.data.loading import News
from bert_lightning.data.reading import Reading
from bert_lightning.data.records import Split
from bert_lightning.inspection.results import Subject, TokenCounts

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def subject_of_files(
    reading: Reading,
    class_names: tuple[str, ...],
    rows: Mapping[Split, EncodedRows],
    tokenizer: PreTrainedTokenizerBase,
) -> Subject:
    """Return all that stands in the files, bad rows and labels without a class included.

    Args:
        reading: What stands in the files.
        class_names: Names that the user gives, if any.
        rows: The tokenised records of each split.
        tokenizer: What made them.

    Raises:
        DataError: The user or the class file names no two different classes.
    """
    lists = {"data.class_names": list(class_names)} if class_names else {}
    if reading.class_list:
        lists |= {reading.class_list.source: reading.class_list.names, **reading.class_list.others}
    labels = settle_classes(reading, class_names, None).labels if lists else None
    return Subject(
        name=reading.path,
        records=reading.records,
        labels=labels,
        class_lists=lists,
        faults=reading.faults,
        digests={file.split: file.digest for file in reading.files},
        files=reading.files,
        tokens=_token_counts(rows),
        tokenizer=tokenizer,
    )


def subject_of_news(news: News, rows: Mapping[Split, EncodedRows]) -> Subject:
    """Return the records that a fit uses.

    Args:
        news: The data set.
        rows: Its tokenised records of each split.
    """
    return Subject(
        name=news.name,
        records=news.records,
        labels=news.labels,
        files=news.files,
        tokens=_token_counts(rows),
    )


def _token_counts(rows: Mapping[Split, EncodedRows]) -> dict[Split, TokenCounts]:
    return {split: TokenCounts(r.pieces, r.table.unknown) for split, r in rows.items()}
