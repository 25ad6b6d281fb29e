# SPDX-License-Identifier: Apache-2.0
"""What is accepted as data, what becomes of a DataLoader, and what is refused with what to write."""

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)
from torch.utils.data.distributed import DistributedSampler

from truestep.core.errors import DataError, OptionError
from truestep.engine.data import DataOptions, open_source

numbers = list(range(10))


def batches(data, **options):
    return [batch.tolist() for batch in open_source(data, DataOptions(**options), seed=0).batches(0)]


def test_a_loader_gives_its_data_set_and_its_options():
    assert batches(DataLoader(numbers, batch_size=3)) == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]
    assert batches(DataLoader(numbers, batch_size=7, drop_last=True)) == [[0, 1, 2, 3, 4, 5, 6]]
    assert batches(DataLoader(numbers, batch_size=3, collate_fn=lambda s: torch.tensor(s[0])))[:2] == [0, 3]


def test_a_shuffling_loader_is_shuffled_in_an_order_that_can_be_resumed():
    expected = batches(torch.arange(10), batch_size=3, shuffle=True)
    assert expected == batches(DataLoader(numbers, batch_size=3, shuffle=True))
    in_memory = open_source(DataLoader(TensorDataset(torch.arange(10)), batch_size=3, shuffle=True), seed=0)
    assert expected == [batch.tolist() for (batch,) in in_memory.batches(0)]


def test_subsets_and_weights_of_a_loader_are_kept():
    subset = batches(DataLoader(numbers, batch_size=3, sampler=SubsetRandomSampler([1, 5, 7])))
    assert sorted(subset[0]) == [1, 5, 7]
    weights = [0.0] * 8 + [1.0, 1.0]
    drawn = batches(DataLoader(numbers, batch_size=3, sampler=WeightedRandomSampler(weights, 20)))
    assert sum(len(batch) for batch in drawn) == 20
    assert {8, 9} == {index for batch in drawn for index in batch}


def test_a_loaders_workers_are_kept():
    source = open_source(DataLoader(numbers, batch_size=5, num_workers=1), seed=0)
    assert next(choice.value for choice in source.choices if choice.name == "workers") == "1"
    assert [batch.tolist() for batch in source.batches(0)] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    source.close()


@pytest.mark.parametrize(
    ("loader", "words"),
    [
        (DataLoader(numbers, sampler=DistributedSampler(numbers, 2, 0)), "the sampler DistributedSampler"),
        (DataLoader(numbers, sampler=[3, 1]), "the sampler list"),
        (DataLoader(numbers, sampler=RandomSampler(numbers, num_samples=3)), "the sampler RandomSampler"),
        (DataLoader(numbers, batch_size=None, shuffle=True), "batch_size=None and the sampler RandomSampler"),
        (DataLoader(numbers, batch_sampler=[[1, 2]]), "the batch sampler list"),
    ],
)
def test_a_loader_whose_order_is_its_own_is_refused(loader, words):
    with pytest.raises(DataError) as caught:
        open_source(loader, seed=0)
    assert words in str(caught.value)
    assert "Give its list itself" in str(caught.value)


def test_a_plain_batch_sampler_is_understood():
    sampler = BatchSampler(SequentialSampler(numbers), batch_size=4, drop_last=True)
    assert batches(DataLoader(numbers, batch_sampler=sampler)) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_a_loader_without_a_batch_size_reads_ready_batches_as_torch_does():
    ready = [[number, number + 1] for number in range(5)]
    loader = DataLoader(ready, batch_size=None, collate_fn=torch.tensor)
    assert batches(loader) == [batch.tolist() for batch in loader] == ready
    with pytest.raises(OptionError, match="batch_size=2 beside a DataLoader with batch_size=None"):
        batches(loader, batch_size=2)
    with pytest.raises(
        DataError, match=r"Where each item is a whole batch already.*run.data\(lambda: batches\)"
    ):
        batches(ready)


def test_options_beside_a_loader_are_refused():
    with pytest.raises(OptionError, match=r"shuffle given beside a DataLoader.*loader.dataset"):
        batches(DataLoader(numbers), batch_size=3, shuffle=True)


class NoLength(Dataset):
    def __getitem__(self, index):
        return index


class Frame:
    iloc = None


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("train.csv", "the name of a file and not data"),
        (3, "data is an int, which is none of"),
        (None, "data is a NoneType"),
        (NoLength(), "has __getitem__ but no __len__"),
        (NoLength, "Make an object of it: NoLength(...)"),
        (Frame(), "whose [] asks for columns"),
        ([], "the data set is empty"),
        ([torch.zeros(50, 3), torch.zeros(50)], "Write (images, labels) instead of [images, labels]"),
    ],
)
def test_what_is_no_data_is_refused(data, words):
    with pytest.raises(DataError) as caught:
        batches(data, batch_size=2)
    assert words in str(caught.value)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_pass_of_a_loader_is_refused_and_the_loader_asked_for(num_workers):
    loader = torch.utils.data.DataLoader(torch.arange(6), batch_size=2, num_workers=num_workers)
    with pytest.raises(DataError, match=r"one pass of a DataLoader.*run\.data\(loader\), without iter"):
        open_source(iter(loader), DataOptions(), seed=0)
