"""A data set → its inspection."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import combinations

from bert_lightning.data.records import Split
from bert_lightning.inspection.columns import Labelling, labelling
from bert_lightning.inspection.findings import findings_of
from bert_lightning.inspection.naming import wrong_names
from bert_lightning.inspection.repeats import shared_titles, two_label_titles
from bert_lightning.inspection.results import (
    KEPT_EXAMPLES,
    Counted,
    Inspection,
    SplitStatistics,
    Subject,
)
from bert_lightning.inspection.statistics import INVISIBLE, split_statistics
from bert_lightning.inspection.tokens import PaddingWaste, piece_statistics, token_survey


def inspect(
    subject: Subject,
    max_length: int = 128,
    batch_size: int = 32,
    padding_waste: PaddingWaste | None = None,
) -> Inspection:
    """Find out what is in a data set and what is wrong with it; changes nothing.

    Args:
        subject: The data set.
        max_length: Most pieces a row, for truncation and padding.
        batch_size: Rows a batch, for padding.
        padding_waste: Lengths (int64, after truncation) and batch size to the share of positions
            of all batches that are padding; None leaves it out.
    """
    labels = labelling(subject.records, subject.labels)
    inspection = Inspection(
        name=subject.name,
        files=list(subject.files),
        class_names=labels.names,
        class_lists={place: list(names) for place, names in subject.class_lists.items()},
        has_ids=subject.labels is not None and subject.labels.meanings is not None,
        bad_rows=Counted(len(subject.faults), [str(f) for f in subject.faults[:KEPT_EXAMPLES]]),
        splits=_splits(subject, labels, max_length, batch_size, padding_waste),
        identical=_identical(subject),
        shared=shared_titles(subject.records),
        two_labels=two_label_titles(subject.records, labels),
        invisible_labels=[label for label in labels.raw if label and re.search(INVISIBLE, label)],
        wrong_names=wrong_names(subject.records, labels),
        tokens=token_survey(subject, max_length, batch_size, padding_waste),
    )
    return replace(inspection, findings=findings_of(inspection))


def _splits(
    subject: Subject,
    labels: Labelling,
    max_length: int,
    batch_size: int,
    padding_waste: PaddingWaste | None,
) -> dict[Split, SplitStatistics]:
    statistics = {}
    for split, records in subject.records.items():
        pieces = None
        if split in subject.tokens:
            counts = subject.tokens[split]
            pieces = piece_statistics(counts, max_length, batch_size, padding_waste)
        statistics[split] = split_statistics(records, labels, split, pieces)
    return statistics


def _identical(subject: Subject) -> list[tuple[Split, Split]]:
    splits = [split for split in subject.records if split in subject.digests]
    return [
        (first, second)
        for first, second in combinations(splits, 2)
        if subject.digests[first] == subject.digests[second]
    ]
