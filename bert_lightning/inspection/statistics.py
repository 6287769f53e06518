"""Records and numbered labels → counts, lengths and odd characters of one split.

Texts are read once, in parts, by Arrow's own functions: 740,000 articles neither fill the memory
nor wait for Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bert_lightning.data.records import Split
from bert_lightning.inspection.columns import Labelling, counted_rows
from bert_lightning.inspection.repeats import repeated_titles, two_label_titles
from bert_lightning.inspection.results import (
    Counted,
    Distribution,
    PieceStatistics,
    SplitStatistics,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bert_lightning.data.record_table import Records

SHORT_CHARACTERS = 2
INVISIBLE = "[\u00ad\u200b-\u200f\u2060\ufeff]"
# name of the oddity: what finds it
_MARKS = {
    "replacement_character": "\ufffd",
    "html_entity": r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z]{2,8}[0-9]{0,2});",
    "control_character": "[\\x00-\\x1f\\x7f-\u009f\u2028\u2029]",
    "invisible_character": INVISIBLE,
    "double_space": "  ",
    "ideographic_space": "\u3000",
}
# one look for the beginning of any of them: six looks at 740,000 articles take a minute
_ANY_MARK = "[\\x00-\\x1f\\x7f-\u009f\u00ad\u200b-\u200f\u2028\u2029\u2060\ufeff\u3000\ufffd&]|  "


def distribution(lengths: NDArray[np.int64]) -> Distribution | None:
    """Return the spread of some lengths, or None for no rows."""
    if not len(lengths):
        return None
    levels = np.percentile(lengths, [0, 50, 90, 95, 99, 100], method="inverted_cdf")
    minimum, p50, p90, p95, p99, maximum = map(int, levels)
    return Distribution(minimum, float(lengths.mean()), p50, p90, p95, p99, maximum)


def split_statistics(
    records: Records, labels: Labelling, split: Split, pieces: PieceStatistics | None = None
) -> SplitStatistics:
    """Return all that is known of one split by itself.

    Args:
        records: Its records.
        labels: Labels of all splits.
        split: Which one it is.
        pieces: Its token counts, if there are any.
    """
    codes = labels.codes[split]
    lengths, marks = _read_texts(records)
    unlabelled = np.flatnonzero(~labels.is_labelled(split))
    return SplitStatistics(
        rows=len(records),
        class_rows=_class_rows(labels, split),
        unlabelled=counted_rows(records, unlabelled),
        unnamed_labels=_unnamed_labels(labels, split),
        runs=count_runs(codes),
        runs_if_shuffled=expected_runs(codes),
        repeats=repeated_titles(records),
        two_labels=two_label_titles({split: records}, labels).count,
        characters=distribution(lengths),
        empty=counted_rows(records, np.flatnonzero(lengths == 0)),
        short=counted_rows(records, np.flatnonzero((lengths > 0) & (lengths <= SHORT_CHARACTERS))),
        marks=marks,
        pieces=pieces,
    )


def _class_rows(labels: Labelling, split: Split) -> dict[str, int]:
    classes = labels.classes(split)
    counts = np.bincount(classes[classes >= 0], minlength=len(labels.names))
    return dict(zip(labels.names, counts.tolist(), strict=True))


def _unnamed_labels(labels: Labelling, split: Split) -> dict[str, int]:
    counts = np.bincount(labels.codes[split], minlength=len(labels.raw))
    return {
        label: int(count)
        for label, count, index in zip(labels.raw, counts, labels.class_of, strict=True)
        if label is not None and count and index < 0
    }


def count_runs(codes: NDArray[np.int64]) -> int:
    """Return the number of stretches of equal labels.

    >>> count_runs(np.array([0, 0, 1, 0]))
    3
    """
    return int(np.count_nonzero(np.diff(codes)) + (len(codes) > 0))


def expected_runs(codes: NDArray[np.int64]) -> float:
    """Return the mean number of stretches that the same labels have in random order.

    >>> expected_runs(np.array([0, 1]))
    2.0
    """
    if not len(codes):
        return 0.0
    counts = np.bincount(codes).astype(float)
    return float(1 + len(codes) - (counts**2).sum() / len(codes))


def _read_texts(records: Records) -> tuple[NDArray[np.int64], dict[str, Counted]]:
    """Return the characters of each text without blanks around, and the rows of each oddity."""
    import pyarrow.compute as pc

    lengths = [np.zeros(0, dtype=np.int64)]
    rows: dict[str, list[NDArray[np.int64]]] = {name: [] for name in _MARKS}
    start = 0
    for texts in records.parts("text"):
        trimmed = pc.utf8_length(pc.utf8_trim_whitespace(texts))
        lengths.append(np.asarray(trimmed, dtype=np.int64))
        suspects = np.flatnonzero(
            pc.match_substring_regex(texts, _ANY_MARK).to_numpy(zero_copy_only=False)
        )
        odd = texts.take(suspects)
        for name, pattern in _MARKS.items():
            found = np.flatnonzero(pc.match_substring_regex(odd, pattern))
            rows[name].append(suspects[found] + start)
        start += len(texts)
    empty = np.zeros(0, dtype=np.int64)
    marks = {
        name: counted_rows(records, np.concatenate([empty, *parts])) for name, parts in rows.items()
    }
    return np.concatenate(lengths), marks
