"""Keys of titles → titles that stand in a data set more than once.

Two titles are the same as they stand (exact) or by what is left of them without editors' marks (by
key; see `bert_lightning.data.keys`). Only key columns are read, and texts for the examples.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from bert_lightning.data.keys import key_of
from bert_lightning.data.records import Split
from bert_lightning.inspection.columns import Labelling, shown_row
from bert_lightning.inspection.results import KEPT_EXAMPLES, Counted, Repeats, SharedTitles

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bert_lightning.data.record_table import Records

_NOTHING = key_of("")


def loose_keys(records: Records) -> NDArray[np.int64]:
    """Return normalised keys; titles of which nothing is left, such as ？？, keep their own."""
    keys = records.numbers("normalised_key")
    return np.where(keys == _NOTHING, records.numbers("text_key"), keys)


def repeated_titles(records: Records) -> Repeats:
    """Count rows whose title stood in the same split before."""
    exact = records.numbers("text_key")
    _, first, group = np.unique(loose_keys(records), return_index=True, return_inverse=True)
    earlier = first[group]
    repeated = np.flatnonzero(earlier != np.arange(len(records)))
    examples = [
        f"{shown_row(records, int(row))} – as {records[int(earlier[row])].where}"
        for row in repeated[:KEPT_EXAMPLES]
    ]
    return Repeats(len(exact) - len(np.unique(exact)), len(repeated), examples)


def shared_titles(records: Mapping[Split, Records]) -> list[SharedTitles]:
    """Count titles that stand in two splits, for each pair of splits."""
    exact = {split: np.unique(rows.numbers("text_key")) for split, rows in records.items()}
    loose = {split: loose_keys(rows) for split, rows in records.items()}
    found = []
    for first, second in combinations(records, 2):
        _, left, right = np.intersect1d(loose[first], loose[second], return_indices=True)
        order = np.argsort(right)[:KEPT_EXAMPLES]
        examples = [
            f"{shown_row(records[second], int(right[i]))} – as {records[first][int(left[i])].where}"
            for i in order
        ]
        same = len(np.intersect1d(exact[first], exact[second], assume_unique=True))
        found.append(SharedTitles(first, second, same, len(right), examples))
    return found


def two_label_titles(records: Mapping[Split, Records], labels: Labelling) -> Counted:
    """Count titles that stand somewhere with one label and elsewhere with another.

    Rows without a label are left out.
    """
    splits = [split for split in records if len(records[split])]
    if not splits:
        return Counted(0)
    keys = np.concatenate([loose_keys(records[split]) for split in splits])
    codes = np.concatenate([labels.codes[split] for split in splits])
    owners = np.repeat(np.arange(len(splits)), [len(records[split]) for split in splits])
    rows = np.concatenate([np.arange(len(records[split])) for split in splits])
    kept = np.flatnonzero(np.concatenate([labels.is_labelled(split) for split in splits]))
    order = kept[np.lexsort((codes[kept], keys[kept]))]
    same_title = np.diff(keys[order]) == 0
    changes = np.flatnonzero(same_title & (np.diff(codes[order]) != 0))  # order is by key
    _, once = np.unique(keys[order[changes]], return_index=True)
    examples = []
    for change in changes[np.sort(once)][:KEPT_EXAMPLES]:
        one, other = (
            (records[splits[int(owners[row])]], int(rows[row]))
            for row in (order[change], order[change + 1])
        )
        record = other[0][other[1]]
        text = shown_row(*one)
        examples.append(
            f"{text} – {one[0][one[1]].label!r}, but {record.label!r} at {record.where}"
        )
    return Counted(len(once), examples)
