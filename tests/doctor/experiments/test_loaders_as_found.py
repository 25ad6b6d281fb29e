# SPDX-License-Identifier: Apache-2.0
"""Whatever loader a script has, and however it draws its order: experiments leave order, streams and weights as they were."""

import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from doctor.experiments.test_relations import pytestmark as needs_forks
from torch import nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    TensorDataset,
    WeightedRandomSampler,
)

from truestep.doctor.runtime.watch import Watch, WatchOptions
from truestep.doctor.selection import CheckSelection

pytestmark = needs_forks
ROWS, SIZE = 22, 4


class Stream(IterableDataset):
    def __init__(self, data):
        self.data = data

    def __iter__(self):
        yield from (self.data[number] for number in range(ROWS))


class OfNoLength(Dataset):
    def __init__(self, data):
        self.data = data

    def __getitem__(self, number):
        return self.data[number]


class Shuffled(Sampler):
    """Draws from Python's stream, or from NumPy's."""

    def __init__(self, draw):
        self.draw = draw

    def __len__(self):
        return ROWS

    def __iter__(self):
        return iter([int(each) for each in self.draw(ROWS)])


class OwnBatches(Shuffled):
    batch_size, drop_last = SIZE, False

    def __iter__(self):
        rows = [int(each) for each in self.draw(ROWS)]
        return iter([rows[first : first + SIZE] for first in range(0, ROWS, SIZE)])


def with_python(count):
    return random.sample(range(count), count)


LOADERS = {
    "shuffled": lambda data: DataLoader(data, SIZE, shuffle=True),
    "with a generator": lambda data: DataLoader(
        data, SIZE, shuffle=True, generator=torch.Generator().manual_seed(3)
    ),
    "weighted": lambda data: DataLoader(data, SIZE, sampler=WeightedRandomSampler([1.0] * ROWS, ROWS)),
    "by python": lambda data: DataLoader(data, SIZE, sampler=Shuffled(with_python), drop_last=True),
    "by numpy": lambda data: DataLoader(data, SIZE, sampler=Shuffled(np.random.permutation)),
    "of batches": lambda data: DataLoader(data, batch_sampler=BatchSampler(RandomSampler(data), SIZE, False)),
    "of batches of one's own": lambda data: DataLoader(data, batch_sampler=OwnBatches(with_python)),
    "a stream": lambda data: DataLoader(Stream(data), SIZE),
    "of no length": lambda data: DataLoader(OfNoLength(data), SIZE, sampler=Shuffled(with_python)),
}


def training(loader_of):
    """Train, with an evaluation behind it; return all that tells one training from another."""
    torch.manual_seed(0), random.seed(0), np.random.seed(0)
    net = nn.Linear(4, 3)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    data = TensorDataset(torch.randn(ROWS, 4), torch.arange(ROWS) % 3)
    loader, held, told = loader_of(data), loader_of(data), []
    for _ in range(3):
        total = 0.0
        for x, y in loader:
            opt.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            opt.step()
            total += loss.item()
        print(f"loss {total / 5:.4f}")
        told.append(total)
    with torch.no_grad():
        print(f"held {sum(F.cross_entropy(net(x), y).item() for x, y in held):.4f}")
    drawn = torch.rand(()).item(), random.random(), np.random.rand()
    return told, [each.tolist() for each in net.parameters()], drawn


@pytest.mark.sliced(3)
@pytest.mark.parametrize("name", LOADERS)
def test_a_training_is_the_same_with_experiments(name):
    expected = training(LOADERS[name])
    codes = ("REL006", "REL009", "REL014")  # one for each place
    with Watch(WatchOptions(CheckSelection(select=codes, preview=True), probe=True)) as watch:
        found = training(LOADERS[name])
    assert watch.failures == []
    assert found == expected
    assert watch.experiments.records["REL006"].outcome == "held"
    if name in ("shuffled", "with a generator", "weighted", "by python", "of batches"):
        assert watch.experiments.records["REL014"].outcome == "held"
