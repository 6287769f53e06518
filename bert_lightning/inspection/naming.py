"""Class names and titles → names that are likely wrong, and lists of names that disagree.

A class file of another copy of the data is in range for every id, and nothing fails: accuracy is
the same, only what the classes are called is wrong. The titles tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from bert_lightning.data.records import Split
from bert_lightning.inspection.columns import Labelling, shown_row
from bert_lightning.inspection.lexicon import WORDS, are_kin, topic_of, word_pattern
from bert_lightning.inspection.results import WrongName

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bert_lightning.data.record_table import Records

_TITLES = 500  # of a class; more do not change the verdict
_CHARACTERS = 100  # of an article, which says what it is about at its beginning
_LEAST_HITS = 4
_LEAST_SHARE = 0.25  # of the titles; of THUCNews' own classes 33 % and more hold such a word
_MARGIN = 3.0  # rightly named classes of THUCNews: at most 0.4; exchanged ones: 3.2 and more
_EXAMPLES = 3


def wrong_names(records: Mapping[Split, Records], labels: Labelling) -> list[WrongName]:
    """Return the classes whose titles hold far more words of another class than of their own.

    Classes that the lexicon does not know, or of which it knows a neighbour, are left alone.
    """
    found = []
    for index, name in enumerate(labels.names):
        topic = topic_of(name)
        if topic is None:
            continue
        titles, examples = _titles_of(records, labels, index)
        hits = _topic_hits(titles)
        rivals = {other: count for other, count in hits.items() if not are_kin(topic, other)}
        likely = max(rivals, key=lambda other: rivals[other])
        least = max(_LEAST_HITS, _LEAST_SHARE * len(titles), _MARGIN * (hits[topic] + 1))
        if hits[likely] >= least:
            raw = next(
                label for label, i in zip(labels.raw, labels.class_of, strict=True) if i == index
            )
            found.append(
                WrongName(str(raw), name, likely, len(titles), hits[topic], hits[likely], examples)
            )
    return found


def _titles_of(
    records: Mapping[Split, Records], labels: Labelling, index: int
) -> tuple[list[str], list[str]]:
    """Return some titles of a class, evenly from each split, and a few rows to show."""
    titles: list[str] = []
    examples: list[str] = []
    for split, rows in records.items():
        positions = _spread(np.flatnonzero(labels.classes(split) == index), _TITLES)
        titles += [text[:_CHARACTERS] for text in rows.select(positions).strings("text")]
        examples += [shown_row(rows, int(position)) for position in positions[:_EXAMPLES]]
    return titles, examples[:_EXAMPLES]


def _spread(positions: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    if len(positions) <= most:
        return positions
    return positions[np.linspace(0, len(positions) - 1, most).astype(np.int64)]


def _topic_hits(titles: Sequence[str]) -> dict[str, int]:
    """Return for each class of the lexicon how many titles hold one of its words."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = pc.utf8_lower(pa.array(titles, pa.string()))
    return {
        topic: int(np.count_nonzero(pc.match_substring_regex(texts, word_pattern(topic))))
        for topic in WORDS
    }


def lists_that_differ(class_lists: Mapping[str, Sequence[str]]) -> list[str]:
    """Return which lists of class names are not the first one, name for name and in its order.

    >>> lists_that_differ({"class.txt": ["体育", "娱乐"], "label.json": ["娱乐", "体育"]})
    ['label.json']
    """
    lists = {place: list(names) for place, names in class_lists.items()}
    return [place for place, names in lists.items() if names != next(iter(lists.values()))]
