"""Row lengths → batches of row numbers.

Training: rows are shuffled by (seed, epoch), sorted by length inside pools of 50 batches, cut into
global batches and dealt to the ranks, so that the rows of a global batch do not depend on how many
processes share it. Evaluation: rows sorted by length, each row exactly once over all ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from torch.utils.data import Sampler

if TYPE_CHECKING:
    from numpy.typing import NDArray

POOL_BATCHES = 50  # 1.6 % padding at batch 32 on headlines, against 19 % in random order


class BucketBatchSampler(Sampler[list[int]]):
    """Batches of rows of similar length.

    Args:
        lengths: Pieces in each row, shape (rows,).
        batch_size: Rows a batch on one rank.
        shuffle: True in training: random pools, and the same number of batches on every rank.
            False: each row once over all ranks, longest first; ranks may differ by one batch.
        same_order: True to have the order of the first epoch in all, as overfitting needs it.
        seed: With the epoch it decides the order.
        rank: This process.
        world_size: Number of processes.
    """

    def __init__(
        self,
        lengths: NDArray[np.int64],
        batch_size: int,
        *,
        shuffle: bool,
        same_order: bool = False,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        self.lengths = lengths
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.same_order = same_order
        self.seed = seed
        self.rank = rank
        self.world_size = world_size
        self.epoch = 0
        # Lightning calls set_epoch on the sampler inside a batch sampler, never on itself
        self.sampler = self

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of an epoch; Lightning calls this before each."""
        self.epoch = 0 if self.same_order else epoch

    def __len__(self) -> int:
        if self.shuffle:
            return -(-len(self.lengths) // (self.batch_size * self.world_size))
        return max(1, len(range(self._first, len(self.lengths), self._stride)))

    def __iter__(self) -> Iterator[list[int]]:
        return self._training_batches() if self.shuffle else self._evaluation_batches()

    def _training_batches(self) -> Iterator[list[int]]:
        generator = np.random.default_rng([self.seed, self.epoch])
        order = generator.permutation(len(self.lengths))
        size = self.batch_size * self.world_size
        pool = POOL_BATCHES * size
        for start in range(0, len(order), pool):
            part = order[start : start + pool]
            order[start : start + pool] = part[np.argsort(self.lengths[part], kind="stable")]
        starts = np.arange(0, len(order) - size + 1, size)
        generator.shuffle(starts)
        short = len(starts) * size
        for start in [*starts, *([short] if short < len(order) else [])]:
            batch = order[start : start + size]
            if len(batch) < self.world_size:  # a rank without rows would leave the others waiting
                batch = np.resize(batch, self.world_size)
            yield batch[self.rank :: self.world_size].tolist()

    @property
    def _evaluation_size(self) -> int:
        """Rows a batch, fewer where a process would otherwise get none."""
        return min(self.batch_size, max(1, len(self.lengths) // self.world_size))

    @property
    def _first(self) -> int:
        return self.rank * self._evaluation_size

    @property
    def _stride(self) -> int:
        return self.world_size * self._evaluation_size

    def _evaluation_batches(self) -> Iterator[list[int]]:
        order = np.argsort(-self.lengths, kind="stable")
        if self._first >= len(order):  # fewer rows than processes: Lightning wants a batch of each
            yield [0]
        for start in range(self._first, len(order), self._stride):
            yield order[start : start + self._evaluation_size].tolist()
