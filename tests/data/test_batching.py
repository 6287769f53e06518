import itertools
from collections import Counter

import numpy as np
import pytest

from bert_lightning.data.batching import BucketBatchSampler

WORLDS = [1, 2, 3]
SIZES = [
    pytest.param(0, 4, id="no rows"),
    pytest.param(1, 4, id="one row"),
    pytest.param(2, 4, id="fewer rows than processes"),
    pytest.param(3, 8, id="fewer rows than a batch"),
    pytest.param(24, 4, id="even"),
    pytest.param(25, 4, id="one over"),
    pytest.param(1_003, 8, id="several pools"),
]


def _lengths(rows, seed=0):
    """Lengths as those of headlines: about 21 pieces, spread about 5."""
    random = np.random.default_rng(seed)
    return np.clip(random.normal(21, 5, size=rows).round(), 4, 40).astype(np.int64)


def _batches(rows, batch_size, *, shuffle, world_size=1, rank=0, epoch=0, seed=0):
    sampler = BucketBatchSampler(
        _lengths(rows),
        batch_size,
        shuffle=shuffle,
        seed=seed,
        rank=rank,
        world_size=world_size,
    )
    sampler.set_epoch(epoch)
    batches = list(sampler)
    assert len(batches) == len(sampler)
    return batches


def _all_ranks(rows, batch_size, world_size, **options):
    return [
        _batches(rows, batch_size, world_size=world_size, rank=rank, **options)
        for rank in range(world_size)
    ]


def _flat(batches):
    return list(itertools.chain.from_iterable(batches))


def _waste(lengths, batches):
    padded = sum(len(batch) * int(lengths[batch].max()) for batch in batches)
    return 1 - int(lengths.sum()) / padded


# --- evaluation -------------------------------------------------------------------------------


@pytest.mark.parametrize("world_size", WORLDS)
@pytest.mark.parametrize(("rows", "batch_size"), [*SIZES[3:], pytest.param(33, 32, id="split")])
def test_evaluation_takes_each_row_once_over_all_processes(rows, batch_size, world_size):
    ranks = _all_ranks(rows, batch_size, world_size, shuffle=False)
    assert sorted(_flat(_flat(ranks))) == list(range(rows))
    assert all(0 < len(batch) <= batch_size for batch in _flat(ranks))


@pytest.mark.parametrize("world_size", WORLDS)
@pytest.mark.parametrize(("rows", "batch_size"), SIZES[1:])
def test_evaluation_gives_each_process_a_batch_and_nearly_as_many(rows, batch_size, world_size):
    counts = [len(rank) for rank in _all_ranks(rows, batch_size, world_size, shuffle=False)]
    assert min(counts) >= 1
    assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize(("rows", "world_size"), [(1, 2), (1, 3), (2, 3)])
def test_evaluation_repeats_a_row_only_where_there_are_fewer_rows_than_processes(rows, world_size):
    ranks = _all_ranks(rows, 4, world_size, shuffle=False)
    assert [_flat(rank) for rank in ranks[rows:]] == [[0]] * (world_size - rows)
    assert sorted(_flat(_flat(ranks[:rows]))) == list(range(rows))


def test_evaluation_starts_with_the_longest_rows():
    (first, *_), lengths = _batches(100, 8, shuffle=False), _lengths(100)
    assert sorted(lengths[first]) == sorted(lengths)[-8:]


def test_evaluation_does_not_depend_on_epoch_and_seed():
    assert _batches(100, 8, shuffle=False) == _batches(100, 8, shuffle=False, epoch=3, seed=9)


# --- training ---------------------------------------------------------------------------------


@pytest.mark.parametrize("world_size", WORLDS)
@pytest.mark.parametrize(("rows", "batch_size"), SIZES)
def test_training_takes_as_many_batches_on_every_process(rows, batch_size, world_size):
    ranks = _all_ranks(rows, batch_size, world_size, shuffle=True)
    assert len({len(rank) for rank in ranks}) == 1
    assert all(0 < len(batch) <= batch_size for batch in _flat(ranks))


@pytest.mark.parametrize("world_size", WORLDS)
@pytest.mark.parametrize(("rows", "batch_size"), SIZES)
def test_training_takes_each_row_in_an_epoch(rows, batch_size, world_size):
    ranks = _all_ranks(rows, batch_size, world_size, shuffle=True)
    counts = Counter(_flat(_flat(ranks)))
    assert sorted(counts) == list(range(rows))
    extra = sum(counts.values()) - rows  # only to give each process a row in the last step
    assert extra < world_size
    if rows % (batch_size * world_size) >= world_size or rows % (batch_size * world_size) == 0:
        assert extra == 0


@pytest.mark.parametrize("world_size", [2, 3])
@pytest.mark.parametrize("epoch", [0, 1])
@pytest.mark.parametrize("rows", [1_003, 996, 960])
def test_the_rows_of_a_step_do_not_depend_on_the_number_of_processes(rows, world_size, epoch):
    batch_size = 24 // world_size
    one = _batches(rows, 24, shuffle=True, epoch=epoch)
    ranks = _all_ranks(rows, batch_size, world_size, shuffle=True, epoch=epoch)
    steps = [_flat(parts) for parts in zip(*ranks, strict=True)]
    assert [set(step) for step in steps] == [set(step) for step in one]
    for step, reference in zip(steps[:-1], one[:-1], strict=True):
        assert Counter(step) == Counter(reference)


@pytest.mark.parametrize("world_size", [2, 3])
def test_the_rows_of_a_step_are_shared_out_evenly(world_size):
    ranks = _all_ranks(1_003, 8, world_size, shuffle=True)
    for parts in zip(*ranks, strict=True):
        sizes = [len(part) for part in parts]
        assert max(sizes) - min(sizes) <= 1


def test_the_same_seed_and_epoch_give_the_same_order():
    assert _batches(500, 8, shuffle=True, epoch=2, seed=5) == _batches(
        500, 8, shuffle=True, epoch=2, seed=5
    )


@pytest.mark.parametrize(
    "other", [{"epoch": 1}, {"seed": 1}, {"epoch": 1, "seed": 1}], ids=["epoch", "seed", "both"]
)
def test_another_epoch_or_seed_gives_another_order(other):
    assert _batches(500, 8, shuffle=True) != _batches(500, 8, shuffle=True, **other)


def test_an_iterator_can_be_started_again_with_the_same_order():
    sampler = BucketBatchSampler(_lengths(500), 8, shuffle=True)
    first = list(sampler)
    assert list(sampler) == first


def test_the_global_random_state_neither_matters_nor_changes():
    np.random.seed(1)
    before = np.random.get_state()[1].tolist()
    first = _batches(500, 8, shuffle=True)
    assert np.random.get_state()[1].tolist() == before
    np.random.seed(2)
    assert _batches(500, 8, shuffle=True) == first


def test_batches_come_neither_shortest_nor_longest_first():
    lengths = _lengths(5_000)
    means = [lengths[batch].mean() for batch in _batches(5_000, 32, shuffle=True)]
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.3


def test_rows_of_a_batch_differ_between_epochs():
    first, second = (_batches(5_000, 32, shuffle=True, epoch=epoch) for epoch in (0, 1))
    together = {frozenset(pair) for batch in first for pair in itertools.combinations(batch, 2)}
    again = {frozenset(pair) for batch in second for pair in itertools.combinations(batch, 2)}
    assert len(together & again) < 0.1 * len(together)


@pytest.mark.parametrize("shuffle", [True, False], ids=["training", "evaluation"])
def test_less_than_three_percent_of_a_batch_is_padding(shuffle):
    lengths = _lengths(20_000)
    order = np.random.default_rng(0).permutation(len(lengths))
    at_random = [order[start : start + 32] for start in range(0, len(order), 32)]
    assert _waste(lengths, at_random) > 0.15
    assert _waste(lengths, _batches(20_000, 32, shuffle=shuffle)) < 0.03


def test_batches_are_lists_of_plain_numbers():
    for shuffle in (True, False):
        (first, *_) = _batches(50, 8, shuffle=shuffle)
        assert isinstance(first, list)
        assert all(type(row) is int for row in first)


def test_lightning_can_set_the_epoch_through_the_sampler():
    sampler = BucketBatchSampler(_lengths(50), 8, shuffle=True)
    before = list(sampler)
    sampler.sampler.set_epoch(1)
    assert list(sampler) != before


def test_overfitting_sees_the_same_batches_in_each_epoch():
    sampler = BucketBatchSampler(np.arange(3, 103), 8, shuffle=True, same_order=True)
    first = list(sampler)
    sampler.set_epoch(1)
    assert list(sampler) == first
