import itertools
from collections import Counter

import numpy as np
import pytest

from bert_lightning.data.batching import BucketBatchSampler, padding_waste

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


@pytest.mark.parametrize("budget", [None, 200])
def test_an_epoch_that_was_cut_off_goes_on_with_the_next_batch_and_the_one_after_is_whole(budget):
    sampler = BucketBatchSampler(_lengths(100), 8, shuffle=True, tokens_per_batch=budget)
    sampler.set_epoch(1)
    whole = list(sampler)
    sampler.done = 5
    assert list(sampler) == whole[5:]
    assert list(sampler) == whole


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


# --- a budget of tokens -------------------------------------------------------------------------

BUDGET = 400


def _budget_ranks(lengths, world_size, *, shuffle=True, epoch=0, multiple=1, budget=BUDGET):
    """Return the batches of all ranks, each list as long as its sampler says."""
    ranks = []
    for rank in range(world_size):
        sampler = BucketBatchSampler(
            lengths,
            7,
            shuffle=shuffle,
            rank=rank,
            world_size=world_size,
            tokens_per_batch=budget,
            pad_to_multiple_of=multiple,
        )
        sampler.set_epoch(epoch)
        ranks.append(list(sampler))
        assert len(ranks[-1]) == len(sampler)
    return ranks


def _tokens(lengths, batch, multiple):
    longest = max(int(lengths[row]) for row in batch)
    while longest % multiple:
        longest += 1
    return len(batch) * longest


@pytest.mark.parametrize("shuffle", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("multiple", [1, 8])
@pytest.mark.parametrize("world_size", WORLDS)
@pytest.mark.parametrize("rows", [3, 4, 25, 1_003])
def test_no_batch_is_above_the_budget_and_each_row_comes(rows, world_size, multiple, shuffle):
    lengths = _lengths(rows)
    ranks = _budget_ranks(lengths, world_size, shuffle=shuffle, multiple=multiple)
    batches = _flat(ranks)
    assert all(batches)
    assert all(_tokens(lengths, batch, multiple) <= BUDGET for batch in batches)
    counts = Counter(_flat(batches))
    assert sorted(counts) == list(range(rows))
    repeated = sum(counts.values()) - rows
    if shuffle:
        assert repeated < world_size
        assert len({len(rank) for rank in ranks}) == 1
    else:
        assert repeated == 0
        assert min(map(len, ranks)) >= 1
        assert max(map(len, ranks)) - min(map(len, ranks)) <= 1


@pytest.mark.parametrize("world_size", WORLDS)
def test_batches_are_as_full_as_the_budget_allows(world_size):
    lengths = _lengths(2_000)
    steps = list(zip(*_budget_ranks(lengths, world_size), strict=True))
    fullness = []
    for step in steps:
        longest = max(int(lengths[row]) for row in _flat(step))
        fullness.append(min(map(len, step)) == BUDGET // longest == max(map(len, step)))
    assert fullness.count(False) <= 1  # what is left over


@pytest.mark.parametrize("world_size", WORLDS)
def test_rows_are_repeated_only_where_the_last_ones_are_fewer_than_the_ranks(world_size):
    for rows in range(world_size, 60):
        ranks = _budget_ranks(np.full(rows, 100), world_size)  # four rows a batch
        repeated = len(_flat(_flat(ranks))) - rows
        left = rows % (4 * world_size)
        assert repeated == (world_size - left if 0 < left < world_size else 0)


@pytest.mark.parametrize("world_size", WORLDS)
def test_the_number_of_batches_is_the_same_in_each_epoch_but_not_the_batches(world_size):
    lengths = _lengths(1_003)
    epochs = [_budget_ranks(lengths, world_size, epoch=epoch) for epoch in range(4)]
    assert len({len(rank) for ranks in epochs for rank in ranks}) == 1
    first, second = ({frozenset(batch) for batch in _flat(ranks)} for ranks in epochs[:2])
    assert len(first & second) < 0.1 * len(first)


def test_batches_of_a_budget_come_neither_shortest_nor_longest_first():
    lengths = _lengths(5_000)
    means = [lengths[batch].mean() for batch in _budget_ranks(lengths, 1)[0]]
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.3


@pytest.mark.parametrize("shuffle", [True, False], ids=["training", "evaluation"])
def test_a_row_above_the_budget_is_a_batch_of_its_own(shuffle):
    lengths = np.array([5, 900, 5, 401, 5])
    (batches,) = _budget_ranks(lengths, 1, shuffle=shuffle)
    assert sorted(map(sorted, batches)) == [[0, 2, 4], [1], [3]]


def test_the_batch_size_does_not_bound_a_budget():
    (batches,) = _budget_ranks(np.full(100, 4), 1)
    assert [len(batch) for batch in batches] == [100]


def test_rounding_counts_in_the_budget():
    lengths = np.full(80, 17)
    exact, rounded = (_budget_ranks(lengths, 1, multiple=multiple)[0] for multiple in (1, 8))
    assert max(map(len, exact)) == BUDGET // 17
    assert max(map(len, rounded)) == BUDGET // 24


@pytest.mark.parametrize(("rows", "world_size"), [(1, 2), (2, 3)])
@pytest.mark.parametrize("shuffle", [True, False], ids=["training", "evaluation"])
def test_each_process_has_a_row_even_where_there_are_fewer_rows(rows, world_size, shuffle):
    ranks = _budget_ranks(_lengths(rows), world_size, shuffle=shuffle)
    assert [len(_flat(rank)) for rank in ranks] == [1] * world_size
    assert set(_flat(_flat(ranks))) == set(range(rows))


# --- waste --------------------------------------------------------------------------------------


@pytest.mark.parametrize("multiple", [1, 4, 8])
def test_padding_waste_equals_a_count(multiple):
    lengths = _lengths(100)
    batches = _batches(100, 8, shuffle=True)
    padded = sum(_tokens(lengths, batch, multiple) for batch in batches)
    assert padding_waste(lengths, batches, multiple) == pytest.approx(1 - lengths.sum() / padded)


def test_padding_waste_in_numbers():
    lengths = np.array([4, 6, 10])
    assert padding_waste(lengths, [[0, 1], [2]], 1) == pytest.approx(2 / 22)
    assert padding_waste(lengths, [[0, 1], [2]], 8) == pytest.approx(12 / 32)
    assert padding_waste(lengths, [[2]], 1) == 0.0
    assert padding_waste(lengths, [], 1) == 0.0
