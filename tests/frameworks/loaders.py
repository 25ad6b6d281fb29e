# SPDX-License-Identifier: Apache-2.0
"""Loaders in several habits of drawing random numbers."""

import random

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, WeightedRandomSampler


class Drawing(Dataset):
    def __init__(self, draw):
        self.draw = draw

    def __len__(self):
        return 12

    def __getitem__(self, index):
        return index + self.draw()


class Shuffled(IterableDataset):
    """A stream that shuffles in a buffer, from the global stream."""

    def __iter__(self):
        buffer = list(range(5))
        for number in range(5, 17):
            place = random.randrange(len(buffer))
            buffer[place], out = number, buffer[place]
            yield out + np.random.rand()


def everywhere():
    return random.random() + np.random.rand() + torch.rand(()).item()


def own_generators(workers):
    numpy, python = np.random.default_rng(3), random.Random(4)
    data = Drawing(lambda: numpy.random() + python.random())
    return DataLoader(
        data, 2, shuffle=True, num_workers=workers, generator=torch.Generator().manual_seed(7),
        multiprocessing_context="fork" if workers else None,
    )  # fmt: skip


class Picks:
    """A sampler that draws while it goes."""

    def __iter__(self):
        for _ in range(12):
            yield [random.randrange(12), int(torch.randint(12, ()))]

    def __len__(self):
        return 12


HABITS = {
    "global": lambda workers: DataLoader(
        Drawing(everywhere), 2, sampler=RandomSampler(range(12)), num_workers=workers
    ),
    "own": own_generators,
    "stream": lambda workers: DataLoader(Shuffled(), 2, num_workers=workers),
    "sampler": lambda workers: DataLoader(Drawing(everywhere), batch_sampler=Picks(), num_workers=workers),
    "weighted": lambda workers: DataLoader(
        Drawing(everywhere), 3, sampler=WeightedRandomSampler([1.0] * 12, 12), num_workers=workers
    ),
}
