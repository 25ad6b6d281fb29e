# SPDX-License-Identifier: Apache-2.0
"""Trains on streams of which each rank reads a share of its own: `python own_streams.py FOLDER HOW [STOP]`.

Each rank writes FOLDER/HOW-RANK.json: for each kind of stream the ids of each batch's rows here, the weights, and an evaluation.
"""

import json
import math
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

import truestep as ts

RANK, SIZE = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
EVERY = 3  # batches between two checkpoints
BATCH = 5  # of all ranks: their shares of it differ
UNEVEN, WITHOUT_FIRST, LONG_LAST = [13, 5, 0], [0, 8, 4], [4, 21, 17]


class Sample(NamedTuple):
    number: torch.Tensor
    x: torch.Tensor


@dataclass
class Record:
    number: torch.Tensor
    x: torch.Tensor


def ids(sizes, rank=None):
    rank = RANK if rank is None else rank
    return [100 * rank + index for index in range(sizes[rank])]


def sample(number):
    row = torch.tensor([math.sin(number), math.cos(number), number / 100], dtype=torch.float64)
    return torch.tensor(number), row


class Stream(IterableDataset):
    """Splits its share among workers, as it should."""

    def __init__(self, sizes, made=lambda number, x: (number, x)):
        self.sizes, self.made = sizes, made

    def part(self):
        info = get_worker_info()
        return ids(self.sizes)[info.id :: info.num_workers] if info else ids(self.sizes)

    def __iter__(self):
        yield from (self.made(*sample(number)) for number in self.part())


class Stateful(Stream):
    """Goes on from its own state."""

    done = 0

    def __iter__(self):
        done, self.done = self.done, 0
        for at, number in enumerate(self.part()[done:], done):
            self.at = at + 1
            yield self.made(*sample(number))

    def state_dict(self):
        return {"done": self.at}

    def load_state_dict(self, state):
        self.done = self.at = state["done"]


class Noisy(Stream):
    """Draws for each of its samples."""

    def __iter__(self):
        for number, x in super().__iter__():
            yield number, x + torch.rand(3, dtype=torch.float64)


def generated(sizes):
    return lambda: map(sample, ids(sizes))


def ready(sizes):
    """Give batches that are collated already, of other sizes on each rank."""

    def batches():
        mine, size = ids(sizes), 2 + RANK
        for start in range(0, len(mine), size):
            numbers, rows = zip(*map(sample, mine[start : start + size]), strict=True)
            yield torch.stack(numbers), torch.stack(rows)

    return batches


def pair(batch):
    return batch


def named(batch):
    return batch["number"], batch["x"]


def attributes(batch):
    return batch.number, batch.x


def listed(batch):
    if not batch:
        return torch.zeros(0, dtype=torch.long), torch.zeros(0, 3, dtype=torch.float64)
    return tuple(map(torch.stack, zip(*batch, strict=True)))


class Graphs:
    """A batch of a class of the user's own, which nobody can look into."""

    def __init__(self, samples):
        self.number, self.x = map(torch.stack, zip(*samples, strict=True))


def as_dict(number, x):
    return {"number": number, "x": x}


SIZED = {"batch_size": BATCH}
KINDS = {
    "data set": (lambda: Stream(UNEVEN), SIZED, pair),
    "nothing on rank 0": (lambda: Stream(WITHOUT_FIRST), SIZED, pair),
    "function": (lambda: generated(LONG_LAST), SIZED, pair),
    "with a state": (lambda: Stateful(LONG_LAST), SIZED, pair),
    "with a state and workers": (lambda: Stateful(LONG_LAST), {**SIZED, "num_workers": 2}, pair),
    "ready batches": (lambda: ready(UNEVEN), {}, pair),
    "mappings": (lambda: Stream(WITHOUT_FIRST, as_dict), SIZED, named),
    "named tuples": (lambda: Stream(WITHOUT_FIRST, Sample), SIZED, attributes),
    "data classes": (lambda: Stream(WITHOUT_FIRST, Record), SIZED, attributes),
    "lists": (lambda: Stream(WITHOUT_FIRST), {**SIZED, "collate": list}, listed),
    "loader": (lambda: DataLoader(Stream(UNEVEN), batch_size=2), SIZED, pair),
    "without short batches": (lambda: Stream(LONG_LAST), {**SIZED, "drop_last": True}, pair),
    "batches of a class": (
        lambda: Stream(LONG_LAST),
        {**SIZED, "collate": Graphs, "drop_last": True},
        attributes,
    ),
    "noise": (lambda: Noisy(LONG_LAST), SIZED, pair),
}
SOME = [
    "data set",
    "nothing on rank 0",
    "named tuples",
    "with a state",
    "ready batches",
    "lists",
    "without short batches",
]
STOPPED = [
    "data set",
    "nothing on rank 0",
    "with a state",
    "with a state and workers",
    "ready batches",
    "noise",
]


class Highest:
    """A metric."""

    def reset(self):
        self.found, self.calls = [], 0

    def update(self, values):
        self.found += values.tolist()

    def compute(self):
        return torch.tensor(sorted(self.found))


def model(name):
    torch.manual_seed(0)
    norm = torch.nn.BatchNorm1d(4) if name == "named tuples" else torch.nn.Identity()
    return torch.nn.Sequential(torch.nn.Linear(3, 4), norm, torch.nn.Linear(4, 1)).double()


def trained(folder, name, *, strategy="auto", source=None, stop=None):
    """Return the ids of each batch, the weights, the evaluation and the metric of a training of two passes."""
    make, options, read = KINDS[name]
    seen = []
    more = {"progress": False, "quiet": True, "doctor": False, "timeout_seconds": 60.0, "strategy": strategy}
    more |= {"saving": ts.Saving(every_steps=EVERY, background=False)} if stop else {}
    with ts.Run(folder / name, seed=1, precision="float64", **more) as run:
        cut = 1 if name == "function" else None
        net = run.learner(model(name), lambda p: torch.optim.SGD(p, lr=0.1), micro_batch=cut)
        if source is None:
            data = run.data(make(), **options, per_rank=True)
        else:
            data, read = run.data(source), pair

        def loss(batch):
            _, x = read(batch)
            x = x + 0.1 * ts.randn(len(x), 3, dtype=x.dtype)
            return net(x).squeeze(1).square()

        def value(batch):
            _, x = read(batch)
            return net(x).squeeze(1)

        for _ in run.epochs(2):
            for batch in run.batches(data):
                seen.append(read(batch)[0].tolist())
                net.update(loss, batch)
                if stop == run.step and RANK == SIZE - 1:
                    os.kill(os.getpid(), signal.SIGKILL)
        weights = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in net.module.parameters()]
        found = [net.evaluate(value, data), net.evaluate(value, data, metric=Highest())]
        return [seen, [p.tolist() for p in weights], *found]


def reference(folder, name, batches):
    """Return what one process ends with that is given the whole batches."""
    rows = [tuple(map(torch.stack, zip(*map(sample, batch), strict=True))) for batch in batches]
    return trained(folder, name, source=lambda: iter(rows))


def main(folder, how, stop=None):
    if stop:
        found = trained(folder, STOPPED[int(stop) % len(STOPPED)], stop=int(stop) if how == "killed" else -1)
        (folder / f"{how}-{RANK}.json").write_text(json.dumps(found))
        return
    kinds = {"fsdp": SOME[:3], "some": SOME}.get(how, KINDS)
    found = {
        name: trained(folder / how, name, strategy="fsdp" if how == "fsdp" else "auto") for name in kinds
    }
    (folder / f"{how}-{RANK}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), *sys.argv[2:])
