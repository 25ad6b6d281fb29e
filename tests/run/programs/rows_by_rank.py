# SPDX-License-Identifier: Apache-2.0
"""Trains on streams that give rank 1 another number of rows in their third batch: `python rows_by_rank.py FOLDER HABIT HOW`.

HOW is "other", or "same" for its right twin, which gives as many on all ranks. `ended-RANK` holds the steps that were made.
"""

import os
import sys
from pathlib import Path

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

import truestep as ts

RANK, SIZE = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
X = torch.randn(48, 3, generator=torch.Generator().manual_seed(0))
BATCH, AT = 8, 2


def sizes(differs):
    return [BATCH - (differs and RANK == 1 and number == AT) for number in range(6)]


def cut(differs):
    """Yield the rows of each batch; in one of them rank 1 has a row less."""
    for number, size in enumerate(sizes(differs)):
        yield X[number * BATCH : number * BATCH + size]


class Samples(IterableDataset):
    """Ends with its third batch, which has a row less on rank 1; a worker reads its part."""

    def __init__(self, differs, made=lambda row: row):
        self.rows, self.made = sum(sizes(differs)[: AT + 1]), made

    def __iter__(self):
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        yield from (self.made(row) for row in X[: self.rows][first::step])


class OwnBatches(IterableDataset):
    def __init__(self, differs):
        self.differs = differs

    def __iter__(self):
        for rows in cut(self.differs):
            yield rows, rows.sum(1)


def filtered(differs):
    """Yield samples without those that rank 1 alone takes for broken."""
    return lambda: (row for place, row in enumerate(X[:24]) if not (differs and RANK == 1 and place == 20))


SIZED = {"batch_size": BATCH}
MADE = {
    "a function of ready batches": (lambda differs: lambda: cut(differs), {}),
    "ready pairs": (OwnBatches, {}),
    "a loader of ready pairs": (lambda differs: DataLoader(OwnBatches(differs), batch_size=None), {}),
    "ready dicts": (lambda differs: lambda: ({"x": rows} for rows in cut(differs)), {}),
    "ready lists": (lambda differs: lambda: ([rows, rows.sum(1)] for rows in cut(differs)), {}),
    "a short last batch": (Samples, SIZED),
    "a short last batch of dicts": (lambda differs: Samples(differs, lambda row: {"x": row}), SIZED),
    "a loader of samples": (lambda differs: DataLoader(Samples(differs), batch_size=BATCH), SIZED),
    "two workers": (Samples, {**SIZED, "num_workers": 2}),
    "a filter": (filtered, SIZED),
    "collated to lists": (Samples, {**SIZED, "collate": list}),
    "a mixture": (
        lambda differs: ts.Mixture({"a": Samples(differs)}, weights={"a": 1}, at_end="stop"),
        SIZED,
    ),
    "lost on one rank": (
        lambda differs: lambda: (rows[: len(rows) if len(rows) == BATCH else 0] for rows in cut(differs)),
        {},
    ),
}
LOOPS = ["plain", "in parts", "split", "another object", "accumulating", "fsdp", "batch norm"]


def rows_of(batch):
    if isinstance(batch, list) and batch[0].ndim == 1:
        return torch.stack(batch)
    return batch["x"] if isinstance(batch, dict) else batch[0] if isinstance(batch, tuple | list) else batch


def step(net, loss, batch, how):
    if how == "accumulating":
        with net.accumulating() as update:
            for part in rows_of(batch).split(3):
                update.backward(loss(part))
    elif how == "split":
        net.update(loss, batch, split=0)
    elif how == "another object":
        net.update(loss, rows_of(batch) * 2)
    else:
        net.update(loss, batch)


def main(folder, habit, how, loop):
    make, options = MADE[habit]
    more = {"strategy": "fsdp"} if loop == "fsdp" else {}
    with ts.Run(
        folder / "run", progress=False, doctor=False, saving=ts.Saving(every_steps=100), **more
    ) as run:
        torch.manual_seed(0)
        norm = [torch.nn.BatchNorm1d(3)] if loop == "batch norm" else []
        net = run.learner(
            torch.nn.Sequential(*norm, torch.nn.Linear(3, 1)),
            lambda p: torch.optim.SGD(p, lr=0.1),
            micro_batch=2 if loop == "in parts" else None,
        )
        source = run.data(make(how == "other"), **options)

        def loss(batch):
            return net(rows_of(batch)).square().squeeze(1)

        steps = 0
        try:
            for _ in run.epochs(1):
                for batch in run.batches(source):
                    step(net, loss, batch, loop)
                    steps += 1
        finally:
            (folder / f"steps-{RANK}").write_text(str(steps))
    (folder / f"ended-{RANK}").write_text("")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
