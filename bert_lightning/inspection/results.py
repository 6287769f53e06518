"""What an inspection is given and what it finds, as plain data.

`Subject` goes in, `Inspection` comes out; text, JSON, page and short form are made from the latter
alone. Counts are whole; of examples at most `KEPT_EXAMPLES` are kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from bert_lightning.data.reading import FileFacts
from bert_lightning.data.records import Fault, LabelTable, Split
from bert_lightning.errors import SHOWN_PROBLEMS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from transformers import PreTrainedTokenizerBase

    from bert_lightning.data.record_table import Records

KEPT_EXAMPLES = 1_000  # of one kind, or a file full of faults would fill the memory
_SHOWN_OF_NOTES = 5  # clean data with a few notes fit on a screen
Severity = Literal["fault", "note"]


@dataclass(frozen=True)
class TokenCounts:
    """What a tokenizer makes of the rows of a split.

    Args:
        pieces: Pieces of each row before truncation, [CLS] and [SEP] included, int64, (rows,).
        unknown: How many of them are [UNK], int64, (rows,).
    """

    pieces: NDArray[np.int64]
    unknown: NDArray[np.int64]


@dataclass(frozen=True)
class Subject:
    """A data set to be inspected.

    Args:
        name: The path, for the heading.
        records: Records of each split, labels as they stand in the files (None: no label).
        labels: What the labels stand for; None where nothing says so.
        class_lists: Class names by the name of the file or key that holds them, the list in use
            first.
        faults: Rows that are no records.
        digests: SHA-256 of the bytes of each split's file.
        files: How the files were read.
        tokens: Piece counts of each split; empty for none.
        tokenizer: The fast tokenizer that made them; None leaves causes of [UNK] unexplained.
    """

    name: str
    records: Mapping[Split, Records]
    labels: LabelTable | None = None
    class_lists: Mapping[str, Sequence[str]] = field(default_factory=dict)
    faults: Sequence[Fault] = ()
    digests: Mapping[Split, str] = field(default_factory=dict)
    files: Sequence[FileFacts] = ()
    tokens: Mapping[Split, TokenCounts] = field(default_factory=dict)
    tokenizer: PreTrainedTokenizerBase | None = None


@dataclass(frozen=True)
class Counted:
    """A number of rows or titles, and some of them as ``file:line: text``."""

    count: int
    examples: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Distribution:
    """Lengths of a split in short; percentiles are lengths that occur."""

    minimum: int
    mean: float
    p50: int
    p90: int
    p95: int
    p99: int
    maximum: int


@dataclass(frozen=True)
class Repeats:
    """Rows whose title stood in the same file before, as it is or by its normalised key."""

    exact: int
    by_key: int
    examples: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class SharedTitles:
    """Titles that stand in two splits, each counted once."""

    first: Split
    second: Split
    exact: int
    by_key: int
    examples: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class PieceStatistics:
    """Token counts of one split.

    Args:
        pieces: Lengths before truncation.
        truncated: Rows longer than ``max_length``.
        unknown_rows: Rows with an [UNK].
        unknown_pieces: [UNK] in all rows.
        total_pieces: Pieces in all rows.
        padding_waste: Share of padded positions in batches at ``max_length``; None: not asked for.
    """

    pieces: Distribution
    truncated: int
    unknown_rows: int
    unknown_pieces: int
    total_pieces: int
    padding_waste: float | None


@dataclass(frozen=True)
class SplitStatistics:
    """One split.

    Args:
        rows: Records.
        class_rows: Rows of each class, 0 included, in the order of the class names.
        unlabelled: Rows without a label.
        unnamed_labels: Rows of each label that stands for no class name.
        runs: Stretches of equal labels.
        runs_if_shuffled: Their expected number in random order.
        repeats: Titles that stand in it again.
        two_labels: Titles that stand in it with two labels.
        characters: Lengths in characters; None for no rows.
        empty: Titles of blanks only.
        short: Titles of one or two characters.
        marks: Rows that hold odd characters, by the name of the oddity.
        pieces: Token counts, where there are any.
    """

    rows: int
    class_rows: dict[str, int]
    unlabelled: Counted
    unnamed_labels: dict[str, int]
    runs: int
    runs_if_shuffled: float
    repeats: Repeats
    two_labels: int
    characters: Distribution | None
    empty: Counted
    short: Counted
    marks: dict[str, Counted]
    pieces: PieceStatistics | None = None


@dataclass(frozen=True)
class LengthPoint:
    """What a ``max_length`` would cost: shares of truncated rows and of padded positions."""

    max_length: int
    truncated: float
    padding_waste: float | None


@dataclass(frozen=True)
class Bar:
    """Rows with lengths from ``start`` to ``end``, both included."""

    start: int
    end: int
    rows: int


@dataclass(frozen=True)
class UnknownToken:
    """What became [UNK], and how often in the rows that were looked at."""

    text: str
    count: int


@dataclass(frozen=True)
class TokenSurvey:
    """Token counts of all splits.

    Args:
        max_length: The chosen one.
        batch_size: Rows a batch, for the padding.
        advised_max_length: The smallest multiple of 8 that truncates at most 0.5 % of all rows.
        curve: Other choices of ``max_length``.
        histogram: Pieces a row.
        unknown_tokens: What became [UNK], most frequent first.
        unknown_rows_examined: Rows that this was counted in.
    """

    max_length: int
    batch_size: int
    advised_max_length: int
    curve: list[LengthPoint]
    histogram: list[Bar]
    unknown_tokens: list[UnknownToken]
    unknown_rows_examined: int


@dataclass(frozen=True)
class WrongName:
    """A class whose titles speak of something else than its name.

    Args:
        label: The label in the files.
        name: What the class is called.
        likely: What its titles are about.
        titles: Titles looked at.
        titles_of_name: Those with words of what the class is called.
        titles_of_likely: Those with words of what they are about.
        examples: Titles.
    """

    label: str
    name: str
    likely: str
    titles: int
    titles_of_name: int
    titles_of_likely: int
    examples: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Finding:
    """One thing that a user should know.

    Args:
        severity: ``fault`` for wrong data, ``note`` for the rest.
        code: Stable name of the kind.
        message: Where – what was expected – what was found.
        count: Rows or titles concerned.
        examples: Some of them.
        remedy: What to do.
        kinds: Number of different examples, where they are not one a row.
    """

    severity: Severity
    code: str
    message: str
    count: int
    examples: list[str]
    remedy: str
    kinds: int | None = None

    @property
    def shown(self) -> list[str]:
        """Examples for a person, with the number of those left out at the end."""
        most = SHOWN_PROBLEMS if self.severity == "fault" else _SHOWN_OF_NOTES
        shown = self.examples[:most]
        rest = (self.count if self.kinds is None else self.kinds) - len(shown)
        return [*shown, f"… and {rest:,} more"] if shown and rest > 0 else shown

    def __str__(self) -> str:
        return f"{self.message} – {self.remedy}"


@dataclass(frozen=True)
class Inspection:
    """All that is known of a data set.

    Args:
        name: The path.
        files: How the files were read.
        class_names: In order of the class index.
        class_lists: Lists of class names by where they stand.
        has_ids: Whether the files hold ids instead of names.
        bad_rows: Rows that are no records.
        splits: Statistics of each split.
        identical: Pairs of splits whose files are the same, byte for byte.
        shared: Titles of each pair of splits.
        two_labels: Titles with two labels, all splits together.
        invisible_labels: Labels that hold characters nobody sees.
        wrong_names: Classes that are likely called wrongly.
        tokens: Token counts, where there are any.
        findings: What of all this a user should know, faults first.
    """

    name: str
    files: list[FileFacts]
    class_names: list[str]
    class_lists: dict[str, list[str]]
    has_ids: bool
    bad_rows: Counted
    splits: dict[Split, SplitStatistics]
    identical: list[tuple[Split, Split]]
    shared: list[SharedTitles]
    two_labels: Counted
    invisible_labels: list[str]
    wrong_names: list[WrongName]
    tokens: TokenSurvey | None
    findings: list[Finding] = field(default_factory=list)

    @property
    def faults(self) -> list[Finding]:
        """Findings that mean wrong data; with ``--strict`` they end the command with status 1."""
        return [finding for finding in self.findings if finding.severity == "fault"]
