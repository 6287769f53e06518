"""Texts → token ids, in memory or in a file that is memory-mapped when it is opened again.

Every text is tokenised once; a batch is then a few NumPy steps on one flat array of ids. Rows are
addressed by number, in the order of the texts.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch.utils.data import Dataset

from bert_lightning.data.storage import open_arrow, write_arrow
from bert_lightning.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerBase

Batch = dict[str, Any]
Truncation = Literal["head", "tail", "head_tail"]

IGNORED_LABEL = -100  # torch's own ignore_index
ENCODING_VERSION = 1  # goes up when the same texts would be stored otherwise
ROWS_FILE = "rows.arrow"

_CHUNK_TEXTS = 4_000  # in one call of the tokenizer, which keeps about 150 bytes a piece
_CHUNK_CHARACTERS = 400_000
_RECORD_BATCH_PIECES = 8_000_000  # 32 MB: 360,000 headlines


@dataclass(frozen=True)
class RowTable:
    """What is known of each row; all of shape (rows,).

    Args:
        starts: int64, where a row begins in the flat array of ids.
        lengths: int64, its pieces, [CLS] and [SEP] included.
        pieces: int64, the same before it was cut.
        unknown: int64, how many of the pieces that are kept are [UNK].
    """

    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    pieces: NDArray[np.int64]
    unknown: NDArray[np.int64]

    def take(self, rows: NDArray[Any]) -> RowTable:
        """Return some rows in that order."""
        return RowTable(*(getattr(self, field.name)[rows] for field in fields(self)))


class EncodedRows(Dataset[Batch]):
    """Tokenised rows; indexing with a list gives a padded batch.

    Args:
        values: int32, flat; the ids of each row lie behind each other.
        table: Where each row lies in them, and its numbers.
        labels: int64, class index of each row, or None for rows to predict.
        pad_token_id: What fills the padded positions.
        max_length: Most pieces a row; no batch is wider.
        pad_to_multiple_of: A batch is as wide as its longest row, rounded up to a multiple of this
            or to ``max_length`` where that is less, for the model has no positions beyond it.
    """

    def __init__(
        self,
        values: NDArray[np.int32],
        table: RowTable,
        labels: NDArray[np.int64] | None,
        pad_token_id: int,
        max_length: int,
        pad_to_multiple_of: int = 1,
    ) -> None:
        self.values = values
        self.table = table
        self.labels = labels
        self.pad_token_id = pad_token_id
        self.max_length = max_length
        self.pad_to_multiple_of = pad_to_multiple_of
        widest = -(-int(table.lengths.max(initial=0)) // pad_to_multiple_of) * pad_to_multiple_of
        self._positions = np.arange(min(max_length, widest))

    def __len__(self) -> int:
        return len(self.table.starts)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Pieces in each row, int64 of shape (rows,)."""
        return self.table.lengths

    @property
    def pieces(self) -> NDArray[np.int64]:
        """Pieces in each row before it was cut, [CLS] and [SEP] included, int64 of (rows,)."""
        return self.table.pieces

    @property
    def truncated(self) -> int:
        """Number of rows that were cut."""
        return int(np.count_nonzero(self.table.pieces > self.table.lengths))

    @property
    def unknown_ratio(self) -> float:
        """Share of the pieces, [CLS] and [SEP] included, that are [UNK]; 0 without rows."""
        return float(self.table.unknown.sum() / max(1, self.table.lengths.sum()))

    def select(self, rows: NDArray[np.int64], labels: NDArray[np.int64] | None) -> EncodedRows:
        """Return some rows in that order, which share the ids with these.

        Args:
            rows: Row numbers.
            labels: int64, class index of each of them, or None.
        """
        return EncodedRows(
            self.values,
            self.table.take(rows),
            labels,
            self.pad_token_id,
            self.max_length,
            self.pad_to_multiple_of,
        )

    def __getitem__(self, index: int) -> Batch:
        return self.__getitems__([index])

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        """Return rows padded to the longest of them.

        Returns:
            ``input_ids`` and ``attention_mask`` of shape (B, T), ``labels`` of shape (B,), all
            int64; on the host ``rows``, the row numbers as a NumPy array, and ``is_full``, whether
            there is no padding.
        """
        rows = np.asarray(indices, dtype=np.int64)
        lengths = self.table.lengths[rows]
        multiple = self.pad_to_multiple_of
        positions = self._positions[: -(-int(lengths.max(initial=0)) // multiple) * multiple]
        mask = positions < lengths[:, None]
        places = self.table.starts[rows][:, None] + positions
        # one plain take of what stands behind a row, too, is faster than to pick by mask: 1.2
        # against 1.0 million headlines a second in batches of 32
        input_ids = self.values.take(places, mode="clip").astype(np.int64)
        input_ids[~mask] = self.pad_token_id
        batch: Batch = {
            "input_ids": torch.from_numpy(input_ids),
            "attention_mask": torch.from_numpy(mask.astype(np.int64)),
            "rows": rows,
            "is_full": bool(mask.all()),
        }
        if self.labels is not None:
            batch["labels"] = torch.from_numpy(self.labels[rows])
        return batch


@dataclass(frozen=True)
class _Scheme:
    """How pieces become a row; sent to worker processes.

    Args:
        cls_id: Id in front.
        sep_id: Id behind.
        unknown_id: Id of pieces that are not in the vocabulary.
        max_length: Most pieces a row, the two special ones included.
        head: Pieces of a too long text that are kept from its beginning.
    """

    cls_id: int
    sep_id: int
    unknown_id: int
    max_length: int
    head: int


@dataclass(frozen=True)
class _Chunk:
    """Rows behind each other; `values` is flat int32, the others int64 of shape (rows,)."""

    values: NDArray[np.int32]
    lengths: NDArray[np.int64]
    pieces: NDArray[np.int64]
    unknown: NDArray[np.int64]


def encode(
    texts: Iterable[str],
    labels: Sequence[int] | None,
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
    truncation: Truncation = "head",
    pad_to_multiple_of: int = 1,
) -> EncodedRows:
    """Tokenise texts as ``[CLS] pieces [SEP]``, at most ``max_length`` pieces each.

    Args:
        texts: One text a row; an empty one becomes ``[CLS] [SEP]``.
        labels: Class index of each row, or None.
        tokenizer: A fast BERT tokenizer.
        max_length: Most pieces a row, the two special ones included.
        truncation: What is kept of a longer text: its beginning (head), its end (tail), or of both:
            the first ``max_length // 4`` pieces and as many of the last as there is room for
            (head_tail; 128 and 382 at length 512, as Sun et al. 2019, "How to Fine-Tune BERT").
        pad_to_multiple_of: See `EncodedRows`.
    """
    scheme = _scheme(tokenizer, max_length, truncation)
    chunk = _joined([*_encoded(texts, tokenizer, scheme, None)])
    starts = np.cumsum(chunk.lengths) - chunk.lengths
    return EncodedRows(
        chunk.values,
        RowTable(starts, chunk.lengths, chunk.pieces, chunk.unknown),
        None if labels is None else np.asarray(labels, dtype=np.int64),
        tokenizer.pad_token_id,
        max_length,
        pad_to_multiple_of,
    )


def store_encoded(
    folder: Path,
    texts: Iterable[str],
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
    truncation: Truncation,
    num_proc: int | None,
) -> None:
    """Tokenise a stream of texts into a file for `open_encoded`; no more than a part is in memory.

    Args:
        folder: Where the file goes.
        texts: One text a row.
        tokenizer: A fast BERT tokenizer.
        max_length: See `encode`.
        truncation: See `encode`.
        num_proc: Worker processes, each with one thread; None for all cores in this process.

    Raises:
        DataError: A worker process died.
    """
    import pyarrow as pa

    scheme = _scheme(tokenizer, max_length, truncation)
    chunks = _encoded(texts, tokenizer, scheme, num_proc)
    schema = pa.schema(
        [("input_ids", pa.list_(pa.int32())), ("pieces", pa.int32()), ("unknown", pa.int32())]
    )
    write_arrow(folder / ROWS_FILE, schema, map(_columns, _gathered(chunks)))


def open_encoded(
    folder: Path, pad_token_id: int, max_length: int, pad_to_multiple_of: int = 1
) -> EncodedRows:
    """Open what `store_encoded` wrote, without labels; ids are read when a batch asks for them.

    Args:
        folder: Where the file is.
        pad_token_id: See `EncodedRows`.
        max_length: What the rows were stored with.
        pad_to_multiple_of: See `EncodedRows`.
    """
    table = open_arrow(folder / ROWS_FILE)
    values, starts, lengths = _flat(table.column("input_ids"))
    pieces, unknown = (
        table.column(name).to_numpy().astype(np.int64) for name in ("pieces", "unknown")
    )
    rows = RowTable(starts, lengths, pieces, unknown)
    return EncodedRows(values, rows, None, pad_token_id, max_length, pad_to_multiple_of)


def encoding_key(
    tokenizer: PreTrainedTokenizerBase, max_length: int, truncation: Truncation
) -> dict[str, Any]:
    """Return all that stored ids depend on beside the texts, as JSON for `Storage.entry`."""
    import tokenizers

    rules = json.loads(tokenizer.backend_tokenizer.to_str())
    for state in ("truncation", "padding"):  # of the last call; not used here
        del rules[state]
    text = json.dumps(rules, sort_keys=True)
    return {
        "version": ENCODING_VERSION,
        "tokenizers": tokenizers.__version__,
        "tokenizer_sha256": hashlib.sha256(text.encode()).hexdigest(),
        "special_ids": [tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.unk_token_id],
        "max_length": max_length,
        "truncation": truncation,
    }


def _scheme(tokenizer: PreTrainedTokenizerBase, max_length: int, truncation: Truncation) -> _Scheme:
    head = {"head": max_length - 2, "tail": 0, "head_tail": max_length // 4}[truncation]
    return _Scheme(
        tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.unk_token_id, max_length, head
    )


def _encoded(
    texts: Iterable[str],
    tokenizer: PreTrainedTokenizerBase,
    scheme: _Scheme,
    num_proc: int | None,
) -> Iterator[_Chunk]:
    """Yield rows in the order of the texts; one chunk without rows where there are no texts."""
    backend = tokenizer.backend_tokenizer
    if num_proc is None:
        return (_encode_part(part, backend, scheme) for part in _parts(texts))
    return _encoded_by_workers(_parts(texts), backend, scheme, num_proc)


def _parts(texts: Iterable[str]) -> Iterator[list[str]]:
    """Yield texts in lists that are small in number and characters; an empty one for no texts."""
    part: list[str] = []
    characters = 0
    for text in texts:
        if len(part) == _CHUNK_TEXTS or characters >= _CHUNK_CHARACTERS:
            yield part
            part, characters = [], 0
        part.append(text)
        characters += len(text)
    yield part


def _encode_part(texts: list[str], backend: Tokenizer, scheme: _Scheme) -> _Chunk:
    backend.no_truncation()  # what the last call of the tokenizer, or of another user of it, set
    backend.no_padding()
    found = backend.encode_batch_fast(texts, add_special_tokens=False)
    pieces = np.fromiter(map(len, found), np.int64, len(found))
    ids = chain.from_iterable(row.ids for row in found)
    return _cut(np.fromiter(ids, np.int32, int(pieces.sum())), pieces, scheme)


def _cut(ids: NDArray[np.int32], pieces: NDArray[np.int64], scheme: _Scheme) -> _Chunk:
    """Cut texts that are too long and add the special pieces.

    Args:
        ids: int32, those of all texts behind each other, without special ones.
        pieces: int64, how many of them each text has.
        scheme: What to keep and to add.
    """
    room = scheme.max_length - 2
    tail = room - scheme.head
    position = np.arange(len(ids)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    # both are true somewhere in each place of a text that fits, so this keeps it whole
    kept = (position < scheme.head) | (position >= np.repeat(pieces - tail, pieces))
    lengths = np.minimum(pieces, room) + 2
    ends = np.cumsum(lengths)
    starts = ends - lengths
    values = np.empty(int(lengths.sum()), dtype=np.int32)
    is_piece = np.ones(len(values), dtype=np.bool_)
    is_piece[starts] = is_piece[ends - 1] = False
    values[starts], values[ends - 1] = scheme.cls_id, scheme.sep_id
    values[is_piece] = ids[kept]
    unknown = np.add.reduceat(values == scheme.unknown_id, starts, dtype=np.int64)
    return _Chunk(values, lengths, pieces + 2, unknown)


def _encoded_by_workers(
    parts: Iterator[list[str]], backend: Tokenizer, scheme: _Scheme, num_proc: int
) -> Iterator[_Chunk]:
    from concurrent.futures import Future, ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    executor = ProcessPoolExecutor(
        num_proc,
        # a forked copy of a process that has threads, of the tokenizer or of torch, may hang
        multiprocessing.get_context("spawn"),
        _prepare_worker,
        (backend, scheme),
    )
    waiting: deque[Future[_Chunk]] = deque()
    try:
        for part in parts:
            waiting.append(executor.submit(_encode_in_worker, part))
            if len(waiting) > 2 * num_proc:  # enough to keep all busy, little in memory
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        raise DataError(
            [
                f"data.num_proc: expected {num_proc} worker processes that tokenise to the end –"
                " found one that died, most often because the memory was full"
            ],
            "give a smaller --data.num_proc, or null to tokenise in this process",
        ) from error
    finally:
        executor.shutdown(cancel_futures=True)


_worker: tuple[Tokenizer, _Scheme]  # set in worker processes alone


def _prepare_worker(backend: Tokenizer, scheme: _Scheme) -> None:
    global _worker
    _worker = backend, scheme
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one core each
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this worker when its parent was killed; it would wait for work for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _encode_in_worker(texts: list[str]) -> _Chunk:
    return _encode_part(texts, *_worker)


def _joined(chunks: Sequence[_Chunk]) -> _Chunk:
    return _Chunk(
        *(
            np.concatenate([getattr(chunk, field.name) for chunk in chunks])
            for field in fields(_Chunk)
        )
    )


def _gathered(chunks: Iterable[_Chunk]) -> Iterator[_Chunk]:
    """Join small chunks to those of a record batch."""
    waiting: list[_Chunk] = []
    for chunk in chunks:
        waiting.append(chunk)
        if sum(len(chunk.values) for chunk in waiting) >= _RECORD_BATCH_PIECES:
            yield _joined(waiting)
            waiting = []
    if waiting:
        yield _joined(waiting)


def _columns(chunk: _Chunk) -> dict[str, Any]:
    import pyarrow as pa

    offsets = np.concatenate([[0], np.cumsum(chunk.lengths)]).astype(np.int32)
    return {
        "input_ids": pa.ListArray.from_arrays(offsets, chunk.values),
        "pieces": chunk.pieces.astype(np.int32),
        "unknown": chunk.unknown.astype(np.int32),
    }


def _flat(
    lists: pa.ChunkedArray,
) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]:
    """Return one flat array that holds all lists of a memory-mapped file, without a copy.

    The values of each chunk are a slice of one buffer, the whole mapped file, with other columns
    between them. Read as int32 from its first byte to its last, this buffer serves all chunks.

    Returns:
        The file as int32, where each list starts in it, and the length of each list.
    """
    whole, starts, lengths = None, [], []
    for chunk in lists.chunks:
        if not len(chunk):
            continue
        buffer = chunk.values.buffers()[1]
        address = buffer.address + 4 * chunk.values.offset
        while buffer.parent is not None:
            buffer = buffer.parent
        whole = whole or buffer
        assert buffer.address == whole.address, "chunks of one mapped file"
        offsets = chunk.offsets.to_numpy().astype(np.int64)
        starts.append((address - whole.address) // 4 + offsets[:-1])
        lengths.append(np.diff(offsets))
    if whole is None:
        nothing = np.zeros(0, np.int64)
        return np.zeros(0, np.int32), nothing, nothing
    return np.frombuffer(whole, np.int32), np.concatenate(starts), np.concatenate(lengths)
