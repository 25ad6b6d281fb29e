# SPDX-License-Identifier: Apache-2.0
"""The data of drawn trainings that ask for their loader early."""

import random

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset

EPOCHS, BATCHES = 4, 6


class Points(Dataset):
    def __len__(self):
        return 4 * BATCHES

    def __getitem__(self, index):
        return torch.full((3,), float(index)) / 24 + torch.randn(3) * 0.1, index % 2


class Stream(IterableDataset):
    def __iter__(self):
        order = torch.randperm(4 * BATCHES).tolist()
        return ((torch.full((3,), float(index)) / 24, index % 2) for index in order)


class SizedStream(Stream):
    def __len__(self):
        return 4 * BATCHES


def data_of(habits, epoch=0, stream=Stream):
    """Make the data as a habit says; by epoch others are left out, at random it is drawn without a seed."""
    if habits["unsized"]:
        return stream()
    if habits["makes"] == "by_epoch":
        return Subset(Points(), [(epoch + each) % 24 for each in range(24)])
    if habits["makes"] == "at_random":
        return Subset(Points(), random.SystemRandom().sample(range(24), 24))
    return Points()


def loader_of(habits, epoch=0):
    data, workers = data_of(habits, epoch), habits["workers"]
    if habits["unsized"]:
        return DataLoader(data, 4, num_workers=min(1, workers))
    return DataLoader(data, 4, shuffle=True, num_workers=workers)


def look(loader, how):
    """Go through a loader as a habit says, and return something of what it gives."""
    if how == "first":
        return next(iter(loader), None)
    return [batch for batch, _ in zip(loader, range(3 if how == "some" else 99), strict=False)]
