"""Records → token ids, kept as flat arrays.

Every text is tokenised once; a batch is then a few NumPy slices. Rows are addressed by number, in
the order of the records.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import Dataset

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from transformers import PreTrainedTokenizerBase

Batch = dict[str, Any]
IGNORED_LABEL = -100  # torch's own ignore_index


class EncodedRows(Dataset[Batch]):
    """Tokenised rows; indexing with a list gives a padded batch.

    Args:
        values: int32, token ids of all rows behind each other, [CLS] and [SEP] included.
        offsets: int64 of length rows + 1; row i is ``values[offsets[i]:offsets[i + 1]]``.
        labels: int64, class index of each row, or None for rows to predict.
        pad_token_id: What fills the padded positions.
        truncated: Number of rows that were cut at ``max_length``.
        unknown_ratio: Share of pieces that became [UNK].
    """

    def __init__(
        self,
        values: NDArray[np.int32],
        offsets: NDArray[np.int64],
        labels: NDArray[np.int64] | None,
        pad_token_id: int,
        truncated: int,
        unknown_ratio: float,
    ) -> None:
        self.values = values
        self.offsets = offsets
        self.labels = labels
        self.pad_token_id = pad_token_id
        self.truncated = truncated
        self.unknown_ratio = unknown_ratio

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Pieces in each row, int64 of shape (rows,)."""
        return np.diff(self.offsets)

    def __getitem__(self, index: int) -> Batch:
        return self.__getitems__([index])

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        """Return rows padded to the longest of them.

        Returns:
            ``input_ids`` and ``attention_mask`` of shape (B, T), ``labels`` of shape (B,), all
            int64, and ``rows``, the row numbers as a NumPy array, which stays on the host.
        """
        rows = np.asarray(indices, dtype=np.int64)
        starts, lengths = self.offsets[rows], self.lengths_of(rows)
        positions = np.arange(lengths.max(initial=0))
        mask = positions < lengths[:, None]
        input_ids = np.full(mask.shape, self.pad_token_id, dtype=np.int64)
        input_ids[mask] = self.values[(starts[:, None] + positions)[mask]]
        batch: Batch = {
            "input_ids": torch.from_numpy(input_ids),
            "attention_mask": torch.from_numpy(mask.astype(np.int64)),
            "rows": rows,
        }
        if self.labels is not None:
            batch["labels"] = torch.from_numpy(self.labels[rows])
        return batch

    def lengths_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the pieces of some rows, int64 of shape (B,)."""
        return self.offsets[rows + 1] - self.offsets[rows]


def encode(
    texts: Sequence[str],
    labels: Sequence[int] | None,
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
) -> EncodedRows:
    """Tokenise texts as ``[CLS] pieces [SEP]``, cut at the end to ``max_length`` pieces.

    Args:
        texts: One text a row; an empty one becomes ``[CLS] [SEP]``.
        labels: Class index of each row, or None.
        tokenizer: A fast BERT tokenizer.
        max_length: Most pieces a row, the two special ones included.
    """
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    pieces = [row.ids for row in backend.encode_batch_fast(list(texts), add_special_tokens=False)]
    room = max_length - 2
    truncated = sum(len(ids) > room for ids in pieces)
    rows = [[tokenizer.cls_token_id, *ids[:room], tokenizer.sep_token_id] for ids in pieces]
    offsets = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum([len(ids) for ids in rows], out=offsets[1:])
    values = np.fromiter(chain.from_iterable(rows), dtype=np.int32, count=int(offsets[-1]))
    unknown = np.count_nonzero(values == tokenizer.unk_token_id) / max(1, len(values))
    return EncodedRows(
        values,
        offsets,
        None if labels is None else np.asarray(labels, dtype=np.int64),
        tokenizer.pad_token_id,
        truncated,
        float(unknown),
    )
