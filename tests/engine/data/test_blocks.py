# SPDX-License-Identifier: Apache-2.0
"""An order by blocks: each sample once, the same from anywhere and on any number of ranks, and each block opened once."""

from collections import OrderedDict
from itertools import chain

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import ConcatDataset, Dataset, IterableDataset

import truestep as ts
from truestep.core.errors import DataError, OptionError
from truestep.engine.data import BlockShuffle, DataOptions, open_source
from truestep.engine.data.blocks import BlockShuffledSamples
from truestep.engine.processes.batch_row_shares import RankShare


class Sharded(Dataset):
    """Counts how often a block is opened with a cache of so many."""

    def __init__(self, sizes, cache=10**9):
        self.sizes, self.ends = sizes, np.cumsum(sizes)
        self.cache, self.open, self.opened = cache, OrderedDict(), 0

    def block_sizes(self):
        return self.sizes

    def __len__(self):
        return int(self.ends[-1])

    def __getitem__(self, index):
        block = int(np.searchsorted(self.ends, index, side="right"))
        self.opened += block not in self.open
        self.open[block] = None
        self.open.move_to_end(block)
        while len(self.open) > self.cache:
            self.open.popitem(last=False)
        return torch.tensor(index)


def batches(data, epoch=0, start=0, share=None, seed=0, **options):
    options = {"batch_size": 5, "num_workers": 0, "check": False, **options}
    source = open_source(data, DataOptions(**options), seed=seed, share=share or RankShare())
    found = [batch.tolist() for batch in source.batches(epoch, start)]
    source.close()
    return found


SIZES = st.lists(st.integers(1, 30), min_size=1, max_size=25)


@settings(deadline=None)
@given(SIZES, st.integers(1, 6), st.integers(0, 2**32), st.integers(0, 3), st.data())
def test_each_sample_comes_once_and_any_positions_are_computed_alone(sizes, window, seed, epoch, data):
    order = BlockShuffledSamples(np.array(sizes), window, seed)
    total = sum(sizes)
    whole = order.indices(epoch, np.arange(total))
    assert sorted(whole.tolist()) == [*range(total)]
    some = np.array(data.draw(st.lists(st.integers(0, total - 1), min_size=1)))
    again = BlockShuffledSamples(np.array(sizes), window, seed)
    again.indices(epoch + 1, some)
    assert again.indices(epoch, some).tolist() == whole[some].tolist()


@settings(deadline=None, max_examples=30)
@given(SIZES, st.integers(1, 6), st.integers(0, 9))
def test_with_a_cache_of_a_window_each_block_is_opened_once(sizes, window, seed):
    data = Sharded(sizes, cache=window)
    shuffle = BlockShuffle(window=window)
    seen = batches(data, seed=seed, shuffle=shuffle, batch_size=1)
    assert data.opened == len(sizes)
    assert len(seen) == sum(sizes)


@settings(deadline=None, max_examples=20)
@given(SIZES, st.integers(1, 6), st.integers(0, 3), st.data())
def test_the_order_is_the_same_from_every_start_on_any_number_of_ranks(sizes, window, epoch, data):
    options = {"shuffle": BlockShuffle(window=window)}
    whole = batches(Sharded(sizes), epoch, **options)
    start = data.draw(st.integers(0, len(whole)))
    for size in (1, 2, 3):
        parts = [
            batches(Sharded(sizes), epoch, start, RankShare(rank, size), **options) for rank in range(size)
        ]
        together = [[*chain(*rows)] for rows in zip(*parts, strict=True)]
        assert together == whole[start:]


def test_workers_change_nothing():
    options = {"shuffle": BlockShuffle(window=3)}
    assert batches(Sharded([7] * 9), num_workers=2, **options) == batches(Sharded([7] * 9), **options)


def test_epochs_and_seeds_have_orders_of_their_own_and_samples_of_a_window_are_mixed():
    options = {"shuffle": BlockShuffle(block=100, window=4), "batch_size": 100}
    data = torch.arange(4000)
    orders = [batches(data, epoch, seed=seed, **options) for epoch in (0, 1) for seed in (0, 1)]
    assert len({str(order) for order in orders}) == 4
    blocks = [len({sample // 100 for sample in batch}) for batch in orders[0]]
    assert set(blocks) == {4}  # of ten batches each holds samples of all four blocks of its window
    shares = np.array(
        [[sum(s // 100 == b for s in batch) for b in {s // 100 for s in batch}] for batch in orders[0]]
    )
    assert abs(shares - 25).max() < 5 * np.sqrt(25)


class Streaming(IterableDataset):
    """As MosaicML Streaming has it."""

    samples_per_shard = np.array([4, 4, 2])

    def __len__(self):
        return 10

    def __getitem__(self, index):
        return range(10)[index]

    def __iter__(self):
        raise AssertionError("read from front to back")


class Chunk(list):
    pass


class Arrow(list):
    """As Hugging Face's data sets have it: a table of columns in chunks, and maybe an index before it."""

    def __init__(self, sizes, indices=None):
        super().__init__(range(sum(sizes)))
        self._indices = indices
        self.data = self
        self.chunks = [Chunk(range(size)) for size in sizes]

    def column(self, number):
        return self


class Told(Dataset):
    """Seven samples, and whatever it tells of their blocks."""

    def __init__(self, told):
        self.told = told

    def block_sizes(self):
        return self.told

    def __len__(self):
        return 7

    def __getitem__(self, index):
        return torch.tensor(index)


@pytest.mark.parametrize(
    ("data", "blocks"),
    [
        (Sharded([3, 4, 5]), [3, 4, 5]),
        (Streaming(), [4, 4, 2]),
        (ConcatDataset([range(3), range(5)]), [3, 5]),
        (Arrow([6, 2]), [6, 2]),
    ],
)
def test_the_datas_own_blocks_are_found(data, blocks):
    own = batches(data, batch_size=3, shuffle=BlockShuffle(window=1))
    assert own == batches(data, batch_size=3, shuffle=BlockShuffle(block=blocks, window=1))
    assert own != batches(data, batch_size=3, shuffle=BlockShuffle(block=1, window=1))


@pytest.mark.parametrize(
    ("data", "shuffle", "words"),
    [
        (
            torch.arange(9),
            BlockShuffle(),
            "tells of none: it has no method block_sizes().*BlockShuffle.block=1000",
        ),
        (Arrow([6, 2], indices=[1]), BlockShuffle(), "tells of none"),
        (Sharded([3, 4]), BlockShuffle(block=[3, 5]), "hold 8 samples together, and it has 7"),
        (Sharded([3, 4]), BlockShuffle(block=[1 << 62] * 4 + [7]), "samples together, and it has 7"),
        *(
            (Sharded([3, 4]), BlockShuffle(block=block), "a whole number of at least 0 for each block")
            for block in (
                "7",
                [3.5, 4],
                ["3", 4],
                [None, 7],
                [np.nan, 7],
                [-1, 8],
                [[3, 4]],
                [[3], 4],
                {"a": 7},
            )
        ),
        *(
            (Told(told), BlockShuffle(), "what the data tells of its blocks is")
            for told in (7, "7", ["3", "4"], [3.5, 3.5], [-1, 8])
        ),
        (iter([1]), BlockShuffle(block=2), "shuffle= needs samples that can be asked for by number"),
    ],
)
def test_blocks_that_are_not_known_are_refused(data, shuffle, words):
    with pytest.raises(DataError, match=words):
        batches(data, shuffle=shuffle)


def _raising():
    yield 3
    raise OSError("the index is gone")


def _endless():
    while True:
        yield 0


@pytest.mark.parametrize(
    ("method", "words"),
    [
        (lambda self: 1 // 0, r"\(ZeroDivisionError: integer division"),
        (lambda self, shard: shard, r"\(TypeError: .* missing 1 required positional argument: 'shard'\)"),
        (lambda self: _raising(), r"\(OSError: the index is gone\)"),
        (lambda self: _endless(), "hold 0 samples together, and it has 7"),
        (lambda self: {3, 4}, "what the data tells of its blocks is {3, 4}"),
        (lambda self: [3, 3], "hold 6 samples together, and it has 7"),
    ],
)
def test_a_method_that_does_not_tell_its_blocks_is_named_before_a_sample_is_read(method, words):
    class Unread(Told):
        block_sizes = method

        def __getitem__(self, index):
            raise AssertionError("read")

    with pytest.raises(DataError, match=words) as refused:
        batches(Unread(None), shuffle=BlockShuffle())
    if "could not be asked" in str(refused.value):
        assert "a method without arguments" in str(refused.value)
        assert "shuffle=ts.BlockShuffle(block=[1000, 500])" in str(refused.value)

    class Read(Told):
        block_sizes = method

    assert batches(Read(None), batch_size=7, shuffle=True) == batches(range(7), batch_size=7, shuffle=True)


@pytest.mark.parametrize(
    "sizes",
    [
        np.array([3, 4]),
        np.array([3, 4], dtype=np.uint8),
        torch.tensor([3, 4]),
        lambda self: np.array([3, 4]),
        lambda self: iter([3, 4]),
        lambda self: (each for each in (3, 4)),
        property(lambda self: [3, 4]),
        staticmethod(lambda: map(int, "34")),
    ],
)
def test_blocks_are_taken_in_whichever_form_they_are_told(sizes):
    class Own(Told):
        block_sizes = sizes

    expected = batches(range(7), shuffle=BlockShuffle(block=[3, 4], window=1))
    assert batches(Own(None), shuffle=BlockShuffle(window=1)) == expected


@pytest.mark.parametrize("number", [np.int64, np.int32, np.uint8])
def test_whole_numbers_of_numpy_are_whole_numbers(number):
    shuffle = BlockShuffle(block=number(3), window=number(2))
    assert batches(range(7), batch_size=number(2), shuffle=shuffle) == batches(
        range(7), batch_size=2, shuffle=BlockShuffle(block=3, window=2)
    )
    with pytest.raises(OptionError, match="block=0 is too small"):
        BlockShuffle(block=number(0))
    with pytest.raises(OptionError, match=r"block=\[\*sizes\]"):
        BlockShuffle(block=iter([number(3)]))


@pytest.mark.parametrize("told", [7, ["x"], [3.5], None])
def test_a_uniform_shuffle_needs_nothing_of_what_the_data_tells_of_blocks(told):
    found = batches(Told(told), batch_size=7, shuffle=True)
    assert found == batches(range(7), batch_size=7, shuffle=True)


@pytest.mark.parametrize(
    "options", [{"weights": [1.0] * 9}, {"by_length": [1.0] * 9}], ids=["weights", "by_length"]
)
def test_two_ways_to_choose_what_stands_together_are_refused(options):
    with pytest.raises(OptionError, match="both choose which samples stand together"):
        batches(torch.arange(9), shuffle=BlockShuffle(block=2), **options)
    with pytest.raises(OptionError, match="window=0 is too small"):
        BlockShuffle(window=0)
    with pytest.raises(OptionError, match=r"window=None\): write how many blocks"):
        BlockShuffle(window=None)


def test_a_run_says_once_that_blocks_are_cheaper_and_refuses_other_blocks(tmp_path, capsys):
    def train(shuffle, sizes=(5,) * 8):
        with ts.Run(tmp_path, progress=False, saving=ts.Saving(every_steps=2)) as run:
            source = run.data(Sharded(sizes), batch_size=5, shuffle=shuffle)
            for _ in run.epochs(1):
                for _ in run.batches(source):
                    if run.step == 5:
                        raise KeyboardInterrupt
        return capsys.readouterr().err

    with pytest.raises(KeyboardInterrupt):
        train(True)
    assert capsys.readouterr().err.count("shuffle=ts.BlockShuffle() opens each once an epoch") == 1
    with pytest.raises(DataError, match="shuffle was True, is"):
        train(ts.BlockShuffle())
