# SPDX-License-Identifier: Apache-2.0
"""Trains on, or evaluates, data that differ by rank in one of the habits of `HABITS`: `python data_by_rank.py FOLDER HABIT HOW`.

HOW is "trained on", "evaluated" or "beside", with ", per rank" behind it where each rank is said to read a share of its own.
"""

import os
import random
import sys
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
    random_split,
)

import truestep as ts

RANK, SIZE = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
X = torch.randn(48, 3, generator=torch.Generator().manual_seed(0))


class Rows(Dataset):
    def __init__(self, rows=X):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


class Noisy(Rows):
    """Draws from a generator that nobody can find, so that samples can't be compared."""

    def __getitem__(self, index):
        return self.rows[index] + np.random.default_rng().random()


class Stream(IterableDataset):
    def __init__(self, part):
        self.part = part

    def __iter__(self):
        yield from self.part(list(X))


def shuffled(rows, seed):
    order = [*range(len(rows))]
    random.Random(seed).shuffle(order)
    return [rows[index] for index in order]


def hugging_face(part):
    import datasets

    data = datasets.Dataset.from_dict({"x": X.tolist()}).with_format("torch")
    return part(data)


def split_by_node(data):
    from datasets.distributed import split_dataset_by_node

    return split_dataset_by_node(data, RANK, SIZE)


def webdataset(part):
    import webdataset as wds

    def source():
        yield from ({"x": row} for row in part(list(X)))

    return wds.DataPipeline(source, wds.map(lambda sample: sample["x"]))


def own_part(rows):
    return rows[RANK::SIZE]


HABITS = {
    "a Subset of every nth": lambda: Subset(Rows(), range(RANK, 48, SIZE)),
    "a Subset of a block": lambda: Subset(Rows(), range(RANK * 48 // SIZE, (RANK + 1) * 48 // SIZE)),
    "tensors, every nth": lambda: own_part(X),
    "tensors of a Subset": lambda: Subset(TensorDataset(X), range(RANK, 48, SIZE)),
    "an unseeded split": lambda: random_split(Rows(), [32, 16], torch.Generator().manual_seed(RANK))[0],
    "an unseeded split of noise": lambda: random_split(
        Noisy(), [32, 16], torch.Generator().manual_seed(RANK)
    )[0],
    "an unseeded order": lambda: Rows(X[torch.randperm(48, generator=torch.Generator().manual_seed(RANK))]),
    "a list in another order": lambda: shuffled(list(X), RANK),
    "uneven parts": lambda: Rows(X[: 40 + RANK]),
    "joined in another order": lambda: ConcatDataset([Rows(X[:24]), Rows(X[24:])][:: 1 if RANK else -1]),
    "a loader of a Subset": lambda: DataLoader(Subset(Rows(), range(RANK, 48, SIZE)), batch_size=8),
    "a stream, every nth": lambda: Stream(own_part),
    "a stream in another order": lambda: Stream(lambda rows: shuffled(rows, RANK)),
    "a stream that differs later": lambda: Stream(lambda rows: rows[:20] + shuffled(rows[20:], RANK)),
    "a function, every nth": lambda: lambda: iter(own_part(list(X))),
    "a loader of a stream": lambda: DataLoader(Stream(own_part), batch_size=8),
    "datasets, shard": lambda: hugging_face(lambda data: data.shard(SIZE, RANK))["x"],
    "datasets, map, split_dataset_by_node": lambda: hugging_face(split_by_node),
    "datasets, stream, split_dataset_by_node": lambda: hugging_face(
        lambda data: split_by_node(data.to_iterable_dataset(num_shards=6))
    ),
    "webdataset, by hand": lambda: webdataset(own_part),
    "a mixture whose schedule differs later": lambda: ts.Mixture(
        {"a": Rows(), "b": Rows(X + 10)},
        weights=lambda batch: {"a": 1, "b": RANK and batch > 0},
        at_end="stop",
    ),
    "the same, mapped": Rows,
    "the same, in memory": lambda: X,
    "the same, noisy": Noisy,
    "the same, a stream": lambda: Stream(list),
    "the same, datasets": lambda: hugging_face(lambda data: data.to_iterable_dataset(num_shards=6)),
    "the same, webdataset": lambda: webdataset(list),
}


def rows_of(batch):
    return batch["x"] if isinstance(batch, dict) else batch[0] if isinstance(batch, (tuple, list)) else batch


def main(folder, habit, how):
    data = HABITS[habit]()
    with ts.Run(folder / "run", progress=False, doctor=False, saving=ts.Saving(every_steps=2)) as run:
        net = run.learner(torch.nn.Linear(3, 1), lambda p: torch.optim.SGD(p, lr=0.1))
        options = {"batch_size": 8, **({} if isinstance(data, DataLoader) else {"num_workers": 0})}
        options |= {"per_rank": True} if how.endswith(", per rank") else {}
        how = how.removesuffix(", per rank")
        other = run.data(X, batch_size=8)
        source = run.data(data, **options)
        seen = []

        def loss(batch):
            seen.extend(rows_of(batch)[:, 0].tolist())
            return net(rows_of(batch)).square().squeeze(1)

        if how == "evaluated":
            net.evaluate(loss, source)
        else:
            pairs = {
                "trained on": lambda: ((None, batch) for batch in run.batches(source)),
                "beside": lambda: zip(run.batches(other), run.batches(source), strict=False),
            }
            for _ in run.epochs(1):
                for _, batch in pairs[how]():
                    net.update(loss, batch)
        (folder / f"ended-{RANK}").write_text(" ".join(map(str, seen)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
