"""Piece counts → what a `max_length` costs, and what became [UNK]."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from bert_lightning.data.records import Split
from bert_lightning.inspection.results import (
    Bar,
    LengthPoint,
    PieceStatistics,
    Subject,
    TokenCounts,
    TokenSurvey,
    UnknownToken,
)
from bert_lightning.inspection.statistics import distribution

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from transformers import PreTrainedTokenizerBase

    from bert_lightning.data.record_table import Records

PaddingWaste = Callable[["NDArray[np.int64]", int], float]

TRUNCATED_SHARE = 0.005  # of rows, that the advised max_length may cut
LONGEST = 512  # positions of BERT
_STEP = 8  # lengths that tensor cores like
_POINTS = 24
_BARS = 48
_EXAMINED_ROWS = 20_000
_EXAMINED_CHARACTERS = 2_000_000  # some seconds
_AT_ONCE = 500


def piece_statistics(
    counts: TokenCounts, max_length: int, batch_size: int, padding_waste: PaddingWaste | None
) -> PieceStatistics | None:
    """Return token counts of one split, or None for no rows.

    Args:
        counts: Pieces and [UNK] of each row.
        max_length: Where rows are cut.
        batch_size: Rows a batch.
        padding_waste: Lengths after truncation and batch size to the share of padded positions.
    """
    pieces = distribution(counts.pieces)
    if pieces is None:
        return None
    cut = np.minimum(counts.pieces, max_length)
    return PieceStatistics(
        pieces=pieces,
        truncated=int(np.count_nonzero(counts.pieces > max_length)),
        unknown_rows=int(np.count_nonzero(counts.unknown)),
        unknown_pieces=int(counts.unknown.sum()),
        total_pieces=int(counts.pieces.sum()),
        padding_waste=float(padding_waste(cut, batch_size)) if padding_waste else None,
    )


def advised_max_length(pieces: NDArray[np.int64]) -> int:
    """Return the smallest multiple of 8, at most 512, that cuts at most 0.5 % of the rows.

    >>> advised_max_length(np.array([20] * 995 + [90] * 5))
    24
    """
    allowed = int(TRUNCATED_SHARE * len(pieces))
    position = len(pieces) - 1 - allowed
    needed = int(np.partition(pieces, position)[position])
    return min(LONGEST, -(-needed // _STEP) * _STEP)


def length_curve(
    pieces: NDArray[np.int64],
    chosen: int,
    batch_size: int,
    padding_waste: PaddingWaste | None,
) -> list[LengthPoint]:
    """Return the cost of up to 24 lengths between 8 and the longest row, and of the chosen one."""
    most = min(LONGEST, -(-int(pieces.max()) // _STEP) * _STEP)
    steps = np.arange(_STEP, most + 1, _STEP)
    picked = steps[np.unique(np.linspace(0, len(steps) - 1, _POINTS).astype(int))]
    return [
        LengthPoint(
            length,
            float(np.mean(pieces > length)),
            float(padding_waste(np.minimum(pieces, length), batch_size)) if padding_waste else None,
        )
        for length in sorted({*map(int, picked), chosen, advised_max_length(pieces)})
    ]


def histogram(lengths: NDArray[np.int64]) -> list[Bar]:
    """Return rows by length in at most 48 bars of equal width."""
    low, high = int(lengths.min()), int(lengths.max())
    width = -(-(high - low + 1) // _BARS)
    counts = np.bincount((lengths - low) // width)
    return [
        Bar(low + width * i, low + width * (i + 1) - 1, int(count))
        for i, count in enumerate(counts)
    ]


def token_survey(
    subject: Subject, max_length: int, batch_size: int, padding_waste: PaddingWaste | None
) -> TokenSurvey | None:
    """Return what the token counts of all splits say together, or None for no rows."""
    pieces = np.concatenate([np.zeros(0, np.int64), *(c.pieces for c in subject.tokens.values())])
    if not len(pieces):
        return None
    tokens, examined = unknown_tokens(subject.records, subject.tokens, subject.tokenizer)
    return TokenSurvey(
        max_length=max_length,
        batch_size=batch_size,
        advised_max_length=advised_max_length(pieces),
        curve=length_curve(pieces, max_length, batch_size, padding_waste),
        histogram=histogram(pieces),
        unknown_tokens=tokens,
        unknown_rows_examined=examined,
    )


def unknown_tokens(
    records: Mapping[Split, Records],
    tokens: Mapping[Split, TokenCounts],
    tokenizer: PreTrainedTokenizerBase | None,
) -> tuple[list[UnknownToken], int]:
    """Return what became [UNK], most frequent first, and the number of rows looked at.

    Looks at rows with an [UNK], evenly over each split, up to 20,000 rows or 2 million characters.
    """
    if tokenizer is None:
        return [], 0
    counts: Counter[str] = Counter()
    examined = 0
    for split, counted in tokens.items():
        rows = np.flatnonzero(counted.unknown)
        room = max(1, _EXAMINED_ROWS // len(tokens))
        picked = rows[:: max(1, -(-len(rows) // room))]
        budget = _EXAMINED_CHARACTERS // len(tokens)
        for start in range(0, len(picked), _AT_ONCE):
            texts = list(records[split].select(picked[start : start + _AT_ONCE]).strings("text"))
            counts.update(_unknown_in(texts, tokenizer))
            examined += len(texts)
            budget -= sum(map(len, texts))
            if budget < 0:
                break
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [UnknownToken(text, count) for text, count in ordered], examined


def _unknown_in(texts: list[str], tokenizer: PreTrainedTokenizerBase) -> list[str]:
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    unknown = tokenizer.unk_token_id
    rows = backend.encode_batch(texts, add_special_tokens=False)
    return [
        text[start:end]
        for text, row in zip(texts, rows, strict=True)
        for number, (start, end) in zip(row.ids, row.offsets, strict=True)
        if number == unknown
    ]
