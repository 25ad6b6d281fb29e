# SPDX-License-Identifier: Apache-2.0
"""The shards of libraries' data sets are found by their form, and those that count one rank's part are taken whole."""

from itertools import chain

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import Dataset, IterableDataset

import truestep as ts
from truestep.core.errors import DataError
from truestep.engine.data import DataOptions, open_source
from truestep.engine.data.shard_detection import data_block_sizes
from truestep.engine.processes.batch_row_shares import RankShare


class OfRank(IterableDataset):
    """A data set of shards as such libraries have them: any sample by number, and the length of one rank's part."""

    def __init__(self, sizes, num_ranks=1):
        self.sizes, self.num_ranks = sizes, num_ranks

    def __len__(self):
        return (sum(self.sizes) + self.num_ranks - 1) // self.num_ranks

    def __getitem__(self, index):
        if not 0 <= index < sum(self.sizes):
            raise IndexError(index)
        return torch.tensor(index)

    def __iter__(self):
        raise AssertionError("read from front to back")


class Mosaic(OfRank):
    """MosaicML Streaming's form."""

    @property
    def samples_per_shard(self):
        return self.sizes


class Lit(OfRank):
    """The form of litdata: each file, and which of its samples are read."""

    subsampled_files = ()

    @property
    def region_of_interest(self):
        return [(3, 3 + size) for size in self.sizes]


SIZES = st.lists(st.integers(1, 9), min_size=2, max_size=8)


def read(data, share=None, start=0, **options):
    source = open_source(
        data, DataOptions(batch_size=6, num_workers=0, **options), seed=0, share=share or RankShare()
    )
    found = [batch.tolist() for batch in source.batches(1, start)]
    return found, source.fingerprint()


@settings(max_examples=60)
@given(
    sizes=SIZES,
    kind=st.sampled_from([Mosaic, Lit]),
    num_ranks=st.integers(2, 3),
    shuffle=st.sampled_from(["no", "uniform", "blocks"]),
)
def test_a_length_of_one_rank_is_completed_by_the_shards(sizes, kind, num_ranks, shuffle):
    order = {"no": False, "uniform": True, "blocks": ts.BlockShuffle(window=2)}[shuffle]
    alone, told = read(kind(sizes), shuffle=order)
    assert sorted(chain(*alone)) == [*range(sum(sizes))]
    parts = [
        read(kind(sizes, num_ranks), RankShare(rank, num_ranks), shuffle=order) for rank in range(num_ranks)
    ]
    assert [[*chain(*rows)] for rows in zip(*[found for found, _ in parts], strict=True)] == alone
    assert {str(each["class"]) + str(each["num_samples"]) for _, each in parts} == {
        told["class"] + str(told["num_samples"])
    }


def test_an_order_of_its_own_loop_is_refused_on_ranks_too():
    data = Mosaic([5, 5], 2)
    data.shuffle = True
    with pytest.raises(DataError, match="made with shuffle=True"):
        read(data, RankShare(0, 2))


class Held(Dataset):
    """A data set of somebody's own, over files that it holds."""

    def __init__(self, held, size):
        self.size = size
        self.labels, self.held = list(range(size)), held

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return index


@pytest.mark.parametrize("how", ["one", "list", "dict", "dataset"])
def test_row_groups_of_parquet_files_that_a_data_set_holds_are_its_blocks(tmp_path, how):
    import pyarrow as pa  # here, as it imports pandas, which the forks of all tests would copy
    import pyarrow.dataset
    import pyarrow.parquet as pq

    for number, size in enumerate((10, 7)):
        pq.write_table(pa.table({"id": range(size)}), tmp_path / f"{number}.parquet", row_group_size=4)
    paths = [tmp_path / "0.parquet", tmp_path / "1.parquet"]
    files = [pq.ParquetFile(path) for path in paths]
    held = {
        "one": files[0],
        "list": files,
        "dict": dict(enumerate(files)),
        "dataset": pyarrow.dataset.dataset(paths, format="parquet"),
    }[how]
    expected = [4, 4, 2] if how == "one" else [4, 4, 2, 4, 3]
    assert [*data_block_sizes(Held(held, sum(expected)))] == expected
    assert data_block_sizes(Held(held, 5)) is None  # not all of what it holds
    found, _ = read(Held(held, sum(expected)), shuffle=ts.BlockShuffle(window=1))
    assert sorted(chain(*found)) == [*range(sum(expected))]


def test_what_holds_samples_is_not_gone_through():
    class Sample:
        def __getattribute__(self, name):
            raise AssertionError(name)

    assert data_block_sizes(Held([object.__new__(Sample)] * 3, 3)) is None
