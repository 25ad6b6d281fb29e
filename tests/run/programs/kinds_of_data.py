# SPDX-License-Identifier: Apache-2.0
"""One training on every kind of data that `docs/data.md` names; `python kinds_of_data.py FOLDER` goes through all of them.

Each rank writes FOLDER/weights-RANK.json: the weights and the evaluation that each kind ends with.
"""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, IterableDataset, StackDataset, Subset, TensorDataset

import truestep as ts

NUMBER, SIZE = 10, 4  # batches of 4, 4 and 2: of three ranks one has no row of the last
DRAW = torch.Generator().manual_seed(0)
X = torch.randn(NUMBER, 3, generator=DRAW, dtype=torch.float64)
Y = torch.randint(0, 2, (NUMBER,), generator=DRAW)
PAIRS = list(zip(X, Y.tolist(), strict=True))


class Sample(NamedTuple):
    x: torch.Tensor
    y: int


@dataclass
class Columns:
    x: torch.Tensor
    y: torch.Tensor


class Graphs:
    """A batch of a class of the user's own, which nobody can look into."""

    def __init__(self, samples):
        self.x, self.y = torch.stack([x for x, _ in samples]), torch.tensor([y for _, y in samples])


class Mapped(Dataset):
    def __init__(self, made=lambda x, y: (x, y)):
        self.made = made

    def __len__(self):
        return NUMBER

    def __getitem__(self, index):
        return self.made(*PAIRS[index])


class Streamed(IterableDataset):
    def __init__(self, items=PAIRS):
        self.items = items

    def __iter__(self):
        yield from self.items


def generated():
    yield from PAIRS


def ready():
    """Yield batches that somebody else has collated, as lists."""
    for start in range(0, NUMBER, SIZE):
        yield [X[start : start + SIZE], Y[start : start + SIZE]]


def pair(batch):
    x, y = batch
    return x, y


def named(batch):
    return batch["x"], batch["y"]


def listed(batch):
    return torch.stack([x for x, _ in batch]), torch.tensor([y for _, y in batch])


def attributes(batch):
    return batch.x, batch.y


def of_two(batch):
    """Return the rows of a batch of two mappings of the same names."""
    first, second = batch
    return torch.cat([first["x"], second["x"][:, 1:]], 1), first["y"]


def two_views(x, y):
    return {"x": x[:2], "y": y}, {"x": x[1:], "y": y}


def images(samples):
    """Collate to a list of examples of one size, as detectors take them."""
    return [x.expand(2, 3) for x, _ in samples], torch.tensor([y for _, y in samples])


SIZED = {"batch_size": SIZE}
SHUFFLED = {"batch_size": SIZE, "shuffle": True}
KINDS = {
    "tensors": ((X, Y), SHUFFLED, pair),
    "arrays": ((X.numpy(), Y.numpy()), SHUFFLED, pair),
    "columns by name": ({"x": X, "y": Y}, SHUFFLED, named),
    "columns in a list": ({"all": [X, Y]}, SIZED, lambda batch: batch["all"]),
    "data class": (Columns(X, Y), SHUFFLED, attributes),
    "tensor data set": (TensorDataset(X, Y), SHUFFLED, pair),
    "subset of tensors": (Subset(TensorDataset(X, Y), range(NUMBER)), SHUFFLED, pair),
    "list of pairs": (PAIRS, SHUFFLED, pair),
    "list of lists": ([[x, y] for x, y in PAIRS], SHUFFLED, pair),
    "list of mappings": ([{"x": x, "y": y} for x, y in PAIRS], SHUFFLED, named),
    "named tuples": ([Sample(*each) for each in PAIRS], SHUFFLED, attributes),
    "data set": (Mapped(), SHUFFLED, pair),
    "data set of nested pairs": (
        Mapped(lambda x, y: ((x[:1], x[1:]), y)),
        SIZED,
        lambda b: (torch.cat(b[0], 1), b[1]),
    ),
    "data set of two mappings": (Mapped(two_views), SHUFFLED, of_two),
    "data set, subset": (Subset(Mapped(), range(NUMBER)), SHUFFLED, pair),
    "data set, stacked": (StackDataset(X, Y), SHUFFLED, pair),
    "data set, weighted": (Mapped(), {**SIZED, "weights": [1.0] * NUMBER}, pair),
    "data set, by length": (Mapped(), {**SHUFFLED, "by_length": list(range(NUMBER))}, pair),
    "data set, batches as lists": (Mapped(), {**SHUFFLED, "collate": list}, listed),
    "data set, a worker": (Mapped(), {**SHUFFLED, "num_workers": 1}, pair),
    "data set, lists of images": (
        Mapped(),
        {**SIZED, "collate": images},
        lambda b: (torch.stack(b[0])[:, 0], b[1]),
    ),
    "iterable data set": (Streamed(), SIZED, pair),
    "generator function": (generated, SIZED, pair),
    "stream of batches": (ready, {}, pair),
    "stream, batches as lists": (Streamed(), {**SIZED, "collate": list}, listed),
    "loader": (DataLoader(Mapped(), batch_size=SIZE, shuffle=True), SIZED, pair),
    "loader in order": (DataLoader(Mapped(), batch_size=2), SIZED, pair),
    "loader with a collate function": (
        DataLoader(Mapped(), batch_size=SIZE, collate_fn=listed),
        SIZED,
        pair,
    ),
    "loader of a tensor data set": (DataLoader(TensorDataset(X, Y), batch_size=SIZE), SIZED, pair),
    "loader of a stream": (DataLoader(Streamed(), batch_size=SIZE), SIZED, pair),
}
UNCOUNTED = {"batches of a class": (Mapped(), {"batch_size": 6, "collate": Graphs}, attributes)}
"""Kinds that are trained on where each rank has a row of each batch, and not split."""


def trained(name, folder, micro_batch=None):
    """Return the weights and the evaluation that a training on one kind of data ends with."""
    data, options, read = (KINDS | UNCOUNTED)[name]
    torch.manual_seed(0)
    more = {"progress": False, "quiet": True, "doctor": False, "timeout_seconds": 60.0}
    with ts.Run(folder / name, seed=1, precision="float64", **more) as run:
        net = run.learner(
            torch.nn.Linear(3, 2), lambda p: torch.optim.SGD(p, lr=0.3), micro_batch=micro_batch
        )
        source = run.data(data, **options)

        def loss(batch):
            x, y = read(batch)
            return F.cross_entropy(net(x + 0.1 * ts.randn(len(x), 3, dtype=x.dtype)), y, reduction="none")

        def right(batch):
            x, y = read(batch)
            return (net(x).argmax(1) == y).double() + net(x)[:, 0]

        for _ in run.epochs(2):
            for batch in run.batches(source):
                net.update(loss, batch)
        return [net.module.weight.tolist(), net.evaluate(right, source)]


def main(folder):
    """Train on all kinds; in micro-batches on those that can be cut."""
    found = {name: trained(name, folder) for name in (KINDS | UNCOUNTED)}
    for name in ("data set", "data set of two mappings", "data set, batches as lists", "stream of batches"):
        found[f"{name}, cut"] = trained_in_parts(name, folder)
    (folder / f"weights-{os.environ.get('RANK', '0')}.json").write_text(json.dumps(found))


def trained_in_parts(name, folder):
    parts = folder / "parts"
    parts.mkdir(exist_ok=True)
    return trained(name, parts, micro_batch=1)


if __name__ == "__main__":
    torch.set_num_threads(1)
    np.random.seed(0)
    main(Path(sys.argv[1]))
