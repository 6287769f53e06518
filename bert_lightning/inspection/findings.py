"""An inspection's numbers → findings: where – what was expected – what was found – what to do.

One finding a kind, over all splits. A finding that follows from another one is left out: titles
shared by two splits whose files are the same, classes absent from a split that has one label only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain

from bert_lightning.data.records import Split
from bert_lightning.inspection.naming import lists_that_differ
from bert_lightning.inspection.results import (
    KEPT_EXAMPLES,
    Counted,
    Finding,
    Inspection,
    Severity,
    SplitStatistics,
)
from bert_lightning.inspection.tokens import TRUNCATED_SHARE

_SORTED_SHARE = 0.5  # of the stretches of equal labels that random order gives
_LEAST_RUNS = 10.0  # expected ones; fewer say nothing


def findings_of(inspection: Inspection) -> list[Finding]:
    """Return all findings, faults first."""
    found = list(chain.from_iterable(rule(inspection) for rule in _RULES))
    return sorted(found, key=lambda finding: finding.severity != "fault")


def _over_splits(
    inspection: Inspection, part: Callable[[SplitStatistics], Counted]
) -> tuple[str, Counted]:
    """Return ``train 3, test 1`` and the sum of some count of each split."""
    parts = {split: part(statistics) for split, statistics in inspection.splits.items()}
    return _listed({split: counted.count for split, counted in parts.items()}), Counted(
        sum(counted.count for counted in parts.values()),
        [line for counted in parts.values() for line in counted.examples][:KEPT_EXAMPLES],
    )


def _listed(counts: Mapping[Split, int]) -> str:
    return ", ".join(f"{split} {count:,}" for split, count in counts.items() if count)


def _bad_rows(inspection: Inspection) -> Iterator[Finding]:
    bad = inspection.bad_rows
    if bad.count:
        yield Finding(
            "fault",
            "bad_rows",
            f"files: expected a title and a label in each row – found {bad.count:,} other rows",
            bad.count,
            bad.examples,
            "correct them, or leave them out with data.on_bad_row: skip",
        )


def _empty_texts(inspection: Inspection) -> Iterator[Finding]:
    where, empty = _over_splits(inspection, lambda split: split.empty)
    if empty.count:
        yield Finding(
            "fault",
            "empty_texts",
            f"titles: expected text in each row – found blanks only in {where}",
            empty.count,
            empty.examples,
            "correct them, or leave them out with data.on_bad_row: skip",
        )


def _identical_splits(inspection: Inspection) -> Iterator[Finding]:
    for first, second in inspection.identical:
        yield Finding(
            "fault",
            "identical_splits",
            f"{first}, {second}: expected two files – found the same bytes in both",
            inspection.splits[second].rows,
            [],
            f"give {second} a file of its own, or leave it out",
        )


def _leaks(inspection: Inspection) -> Iterator[Finding]:
    shared = [
        pair
        for pair in inspection.shared
        if pair.by_key and (pair.first, pair.second) not in inspection.identical
    ]
    for pair in shared:
        learned = pair.first == "train"
        why = (
            "scores count what was learned by heart"
            if learned
            else f"the best epoch is chosen on a part of {pair.second}"
        )
        yield Finding(
            "fault" if learned else "note",
            "leak" if learned else "shared_titles",
            f"{pair.first}, {pair.second}: expected no title in both – found {pair.by_key:,}"
            f" ({pair.exact:,} to the letter)",
            pair.by_key,
            pair.examples,
            f"{why}; data.drop_leaked: true leaves them out of {pair.first}",
        )


def _two_labels(inspection: Inspection) -> Iterator[Finding]:
    if inspection.two_labels.count:
        per_split = _listed({split: s.two_labels for split, s in inspection.splits.items()})
        inside = f"; inside one split: {per_split}" if per_split else ""
        yield Finding(
            "fault",
            "two_labels",
            "titles: expected one label for each –"
            f" found two for {inspection.two_labels.count:,} titles{inside}",
            inspection.two_labels.count,
            inspection.two_labels.examples,
            "keep the label that is right",
        )


def _unnamed_labels(inspection: Inspection) -> Iterator[Finding]:
    unnamed: dict[str, int] = {}
    for statistics in inspection.splits.values():
        for label, count in statistics.unnamed_labels.items():
            unnamed[label] = unnamed.get(label, 0) + count
    if unnamed:
        expected = (
            f"a class id from 0 to {len(inspection.class_names) - 1}"
            if inspection.has_ids
            else f"one of {len(inspection.class_names)} class names"
        )
        yield Finding(
            "fault",
            "unnamed_labels",
            f"labels: expected {expected} – found {len(unnamed):,} other labels"
            f" in {sum(unnamed.values()):,} rows",
            sum(unnamed.values()),
            [f"{label!r}: {count:,} rows" for label, count in unnamed.items()][:KEPT_EXAMPLES],
            "add them to data.class_names, or leave the rows out with data.on_bad_row: skip",
            kinds=len(unnamed),
        )


def _missing_labels(inspection: Inspection) -> Iterator[Finding]:
    where, missing = _over_splits(inspection, lambda split: split.unlabelled)
    if missing.count:
        whole = [split for split, s in inspection.splits.items() if s.unlabelled.count == s.rows]
        none = f" (none at all in {', '.join(whole)})" if whole else ""
        yield Finding(
            "fault",
            "missing_labels",
            f"labels: expected one in each row – found none in {where} rows{none}",
            missing.count,
            missing.examples,
            "name their column with data.label_column; a file without labels is for predict:"
            " data.predict_path",
        )


def _constant_labels(inspection: Inspection) -> Iterator[Finding]:
    for split, statistics in inspection.splits.items():
        if _is_constant(inspection, statistics):
            yield Finding(
                "fault",
                "constant_labels",
                f"{split}: expected labels of {len(inspection.class_names)} classes –"
                f" found {_used(statistics)[0]} in all {statistics.rows:,} rows",
                statistics.rows,
                [],
                "it looks like a file without labels, with a number in their place: it is for"
                " predict (data.predict_path), its scores mean nothing",
            )


def _used(statistics: SplitStatistics) -> list[str]:
    return [name for name, rows in statistics.class_rows.items() if rows]


def _is_constant(inspection: Inspection, statistics: SplitStatistics) -> bool:
    labels = [*_used(statistics), *statistics.unnamed_labels]
    labelled = statistics.rows - statistics.unlabelled.count
    return len(labels) == 1 and labelled > 1 and len(inspection.class_names) > 1


def _absent_classes(inspection: Inspection) -> Iterator[Finding]:
    used = {name for statistics in inspection.splits.values() for name in _used(statistics)}
    for split, statistics in inspection.splits.items():
        absent = [name for name in used if not statistics.class_rows[name]]
        without = statistics.unlabelled.count == statistics.rows
        if absent and not without and not _is_constant(inspection, statistics):
            names = [name for name in inspection.class_names if name in absent]
            yield Finding(
                "fault",
                "absent_class",
                f"{split}: expected rows of each class –"
                f" found none of {len(names):,} that other splits have",
                len(names),
                names[:KEPT_EXAMPLES],
                f"add such rows to {split}, or take the classes out of data.class_names",
            )


def _unused_names(inspection: Inspection) -> Iterator[Finding]:
    used = {name for statistics in inspection.splits.values() for name in _used(statistics)}
    unused = [name for name in inspection.class_names if name not in used]
    if unused and used:
        yield Finding(
            "note",
            "unused_names",
            f"class names: expected rows of each – found none of {len(unused):,} in any split",
            len(unused),
            unused,
            "take them out of data.class_names unless such rows are to come",
        )


def _class_lists(inspection: Inspection) -> Iterator[Finding]:
    lists = inspection.class_lists
    unlike = lists_that_differ(lists)
    if unlike:
        severity: Severity = "fault" if inspection.has_ids else "note"
        yield Finding(
            severity,
            "class_lists_differ",
            f"class names: expected one list – found {len(unlike):,} beside {next(iter(lists))}"
            " with other names or in another order",
            len(unlike),
            [f"{place}: {', '.join(names)}" for place, names in lists.items()],
            "give the names in the order of the ids with data.class_names",
            kinds=len(lists),
        )


def _wrong_names(inspection: Inspection) -> Iterator[Finding]:
    if inspection.wrong_names:
        examples = []
        for wrong in inspection.wrong_names:
            label = "" if wrong.label == wrong.name else f"id {wrong.label}, "
            examples.append(
                f"{label}called {wrong.name}, is likely {wrong.likely}:"
                f" {wrong.titles_of_likely:,} of {wrong.titles:,} titles have words of that,"
                f" {wrong.titles_of_name:,} of {wrong.name}; {wrong.examples[0]}"
            )
        count = len(examples)
        yield Finding(
            "fault",
            "wrong_names",
            f"class names: expected names that fit the titles – found {count:,} that likely do not",
            count,
            examples,
            "compare the class file with where the data come from, and give the names in the order"
            " of the ids with data.class_names"
            if inspection.has_ids
            else "compare the names with where the data come from",
        )


def _invisible_labels(inspection: Inspection) -> Iterator[Finding]:
    labels = inspection.invisible_labels
    if labels:
        yield Finding(
            "fault",
            "invisible_in_label",
            f"labels: expected visible characters – found zero-width ones in {len(labels):,}",
            len(labels),
            [ascii(label) for label in labels],
            "take them out: such a label is another class than the one it looks like",
        )


def _repeats(inspection: Inspection) -> Iterator[Finding]:
    where, repeats = _over_splits(
        inspection, lambda split: Counted(split.repeats.by_key, split.repeats.examples)
    )
    exact = sum(statistics.repeats.exact for statistics in inspection.splits.values())
    if repeats.count:
        yield Finding(
            "note",
            "repeats",
            f"titles: expected each once in a split – found {repeats.count:,} again"
            f" ({exact:,} to the letter): {where}",
            repeats.count,
            repeats.examples,
            "harmless if few; they weigh double",
        )


def _sorted_files(inspection: Inspection) -> Iterator[Finding]:
    for split, statistics in inspection.splits.items():
        expected = statistics.runs_if_shuffled
        if expected >= _LEAST_RUNS and statistics.runs < _SORTED_SHARE * expected:
            yield Finding(
                "note",
                "sorted",
                f"{split}: expected shuffled rows – found {statistics.runs:,} stretches of equal"
                f" labels where random order has {expected:,.0f}",
                statistics.runs,
                [],
                "fit shuffles train itself; a part of a sorted file (limit_val_batches) has few"
                " classes",
            )


_MARK_WORDS = {
    "replacement_character": (
        "characters – found U+FFFD, where one was lost,",
        "read the source again in its own encoding, if you have it",
    ),
    "html_entity": (
        "plain text – found HTML entities such as &nbsp;",
        "turn them into characters (html.unescape) if titles to be classified have none",
    ),
    "control_character": (
        "printable text – found control characters or line separators",
        "take them out",
    ),
    "invisible_character": ("visible text – found zero-width characters", "take them out"),
}


def _marks(inspection: Inspection) -> Iterator[Finding]:
    for mark, (words, remedy) in _MARK_WORDS.items():
        parts = {split: statistics.marks[mark] for split, statistics in inspection.splits.items()}
        where = _listed({split: counted.count for split, counted in parts.items()})
        if where:
            yield Finding(
                "note",
                mark,
                f"titles: expected {words} in {where} rows",
                sum(counted.count for counted in parts.values()),
                [line for part in parts.values() for line in part.examples][:KEPT_EXAMPLES],
                remedy,
            )


def _short_texts(inspection: Inspection) -> Iterator[Finding]:
    where, short = _over_splits(inspection, lambda split: split.short)
    if short.count:
        yield Finding(
            "note",
            "short_texts",
            f"titles: expected three characters or more – found fewer in {where} rows",
            short.count,
            short.examples,
            "look whether the rest stands in another column",
        )


def _unknown_pieces(inspection: Inspection) -> Iterator[Finding]:
    counts = [s.pieces for s in inspection.splits.values() if s.pieces]
    rows = sum(count.unknown_rows for count in counts)
    if rows and inspection.tokens:
        pieces = sum(count.unknown_pieces for count in counts)
        total = sum(count.total_pieces for count in counts)
        all_rows = sum(s.rows for s in inspection.splits.values() if s.pieces)
        yield Finding(
            "note",
            "unknown_pieces",
            f"vocabulary: expected every character – found [UNK] in {rows:,} rows"
            f" ({rows / all_rows:.1%}), {pieces / total:.2%} of all pieces",
            rows,
            [f"{u.text} × {u.count:,}" for u in inspection.tokens.unknown_tokens[:KEPT_EXAMPLES]],
            "harmless for quotation marks; many of another kind mean another model or encoding",
            kinds=len(inspection.tokens.unknown_tokens),
        )


def _truncated(inspection: Inspection) -> Iterator[Finding]:
    tokens = inspection.tokens
    counts = {split: s.pieces.truncated for split, s in inspection.splits.items() if s.pieces}
    rows = sum(inspection.splits[split].rows for split in counts)
    cut = sum(counts.values())
    if tokens and cut > TRUNCATED_SHARE * rows:
        longer = tokens.advised_max_length > tokens.max_length
        yield Finding(
            "note",
            "truncated",
            f"data.max_length: expected room for 99.5 % of the rows – found {tokens.max_length},"
            f" which cuts {cut / rows:.1%} ({_listed(counts)})",
            cut,
            [],
            f"data.max_length: {tokens.advised_max_length}"
            if longer
            else "BERT reads 512 pieces at most: put what matters at the beginning",
        )


_RULES: tuple[Callable[[Inspection], Iterator[Finding]], ...] = (
    _bad_rows,
    _empty_texts,
    _identical_splits,
    _leaks,
    _two_labels,
    _unnamed_labels,
    _missing_labels,
    _constant_labels,
    _absent_classes,
    _wrong_names,
    _invisible_labels,
    _class_lists,
    _unused_names,
    _repeats,
    _sorted_files,
    _marks,
    _short_texts,
    _unknown_pieces,
    _truncated,
)
