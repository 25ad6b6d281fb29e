# SPDX-License-Identifier: Apache-2.0
"""Orders and draws whose bits are those of 0.1.0: `tests/engine/data/golden/0.1.0.json` is what `found` returned there."""

import hashlib
import json
import random

import numpy as np
import torch
from torch.utils.data import Dataset

import truestep as ts
from truestep.engine.data import DataOptions, open_source


class Drawn(Dataset):
    """Draws from each kind of generator, from some in a few samples only."""

    def __init__(self):
        self.own = np.random.default_rng()
        self.legacy = np.random.RandomState(1)
        self.python = random.Random(2)
        self.torch = torch.Generator()

    def __len__(self):
        return 30

    def __getitem__(self, index):
        draws = [random.random(), float(np.random.rand()), torch.rand((), dtype=torch.float64).item()]
        draws += [self.own.random(), self.python.random(), ts.sample_rng().random()]
        if index % 7 == 3:  # late: not in the first batch
            draws += [self.legacy.random_sample(), torch.rand((), generator=self.torch).item()]
        return [index, *(float(draw).hex() for draw in draws)]


class DrawnTogether(Drawn):
    """The same, a batch at a time."""

    def __getitems__(self, indices):
        return [self[index] for index in indices]


def mixed(samples):
    return [*samples, [random.random().hex(), float(np.random.rand()).hex()]]


def _summary(epochs):
    order = [[sample[0] for sample in batch[:-1]] for batches in epochs for batch in batches]
    draws = hashlib.blake2b(json.dumps(epochs).encode(), digest_size=16).hexdigest()
    return {"order": order, "draws": draws}


def found(**options):
    """Return by name two epochs of each order, and a hash of what each sample drew."""
    lengths = [3 + index * 7 % 11 for index in range(30)]
    weights = [1 + index % 3 for index in range(30)]
    orders = {
        "in order": {"batch_size": 4},
        "shuffled": {"batch_size": 4, "shuffle": True},
        "weighted": {"batch_size": 4, "weights": weights},
        "by length": {"batch_size": 4, "shuffle": True, "by_length": lengths},
        "by tokens": {"shuffle": True, "by_length": ts.ByLength(lengths=lengths, max_tokens=40)},
    }
    result = {}
    for name, order in orders.items():
        for kind in (Drawn, DrawnTogether):
            source = open_source(
                kind(), DataOptions(**{"num_workers": 0, "collate": mixed, **order, **options}), seed=5
            )
            result[f"{name}, {kind.__name__}"] = _summary([list(source.batches(epoch)) for epoch in (0, 3)])
            source.close()
    return result
