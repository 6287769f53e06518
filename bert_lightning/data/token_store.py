"""Records → tokenised rows, from the cache where the same records were tokenised before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bert_lightning.data.encoding import (
    EncodedRows,
    Truncation,
    encode,
    encoding_key,
    open_encoded,
    store_encoded,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from transformers import PreTrainedTokenizerBase

    from bert_lightning.data.record_table import Records
    from bert_lightning.data.storage import Storage


@dataclass(frozen=True)
class TokenStore:
    """What turns texts into rows.

    Args:
        storage: Where rows are kept.
        max_length: Most pieces of a row, [CLS] and [SEP] included.
        truncation: Which part of a longer text is kept.
        pad_to_multiple_of: What batches are padded to.
        num_proc: Processes that tokenise; None for all cores in this one.
    """

    storage: Storage
    max_length: int
    truncation: Truncation
    pad_to_multiple_of: int
    num_proc: int | None

    def key(self, tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
        """Return all that rows depend on beside the texts, as JSON."""
        return encoding_key(tokenizer, self.max_length, self.truncation)

    def rows(self, records: Records, entry: str, tokenizer: PreTrainedTokenizerBase) -> EncodedRows:
        """Return the rows of stored records, without labels.

        Args:
            records: The records; those of their table that are not selected are tokenised too, so
                that another selection finds them.
            entry: Where the table is stored.
            tokenizer: A fast tokenizer.

        Raises:
            DataError: A worker process died, or the cache cannot be written.
        """
        folder = self.storage.entry(
            "encoded",
            {"records": entry, "table": records.name, **self.key(tokenizer)},
            lambda draft: store_encoded(
                draft,
                records.whole().strings("text"),
                tokenizer,
                self.max_length,
                self.truncation,
                self.num_proc,
            ),
        )
        pad = tokenizer.pad_token_id
        rows = open_encoded(folder, pad, self.max_length, self.pad_to_multiple_of)
        return rows.select(records.rows, None)

    def rows_in_memory(
        self, texts: Sequence[str], tokenizer: PreTrainedTokenizerBase
    ) -> EncodedRows:
        """Return the rows of texts that are used once, without labels."""
        return encode(
            texts, None, tokenizer, self.max_length, self.truncation, self.pad_to_multiple_of
        )
