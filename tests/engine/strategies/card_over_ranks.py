# SPDX-License-Identifier: Apache-2.0
"""Run as each rank: updates on the stand-in of two cards, whose tensors travel by gloo, since there is no NCCL.

`python card_over_ranks.py FOLDER`: writes what each kind ends with, on the card and the CPU, and what the host waited for.
"""

import os
import sys
from functools import partial
from pathlib import Path
from unittest.mock import patch

import torch
from torch import nn

import truestep as ts
from truestep.run import process_group_setup

sys.path.insert(0, str(Path(__file__).parents[2]))
from support.card import Card

NUM_STEPS = 5


class Net(nn.Module):
    """A second head and a buffer, which a loss may use."""

    def __init__(self, loss):
        super().__init__()
        self.body, self.head, self.other = nn.Linear(4, 6), nn.Linear(6, 1), nn.Linear(6, 1)
        if loss is fills:
            self.register_buffer("largest", torch.zeros(()))

    def forward(self, rows):
        return self.head(self.body(rows).tanh()).squeeze(1)


def usual(net, rows, number, rank):
    return net(rows).square() + net.other(net.body(rows)).squeeze(1).square()


def weighted(net, rows, number, rank):
    return ts.weighted(usual(net, rows, number, rank), rows[:, 0].abs())


def weighted_on_one(net, rows, number, rank):
    values = usual(net, rows, number, rank)
    return ts.weighted(values, torch.ones_like(values)) if rank and number == 2 else values


def measured(net, rows, number, rank):
    values = usual(net, rows, number, rank)
    return ts.weighted(values, torch.ones_like(values), size=values.square())


def left_out(net, rows, number, rank):
    return net(rows).square()


def left_out_on_one(net, rows, number, rank):
    return left_out(net, rows, number, rank) if rank and number == 2 else usual(net, rows, number, rank)


def fills(net, rows, number, rank):
    net.largest.fill_(number)
    return usual(net, rows, number, rank)


LOSSES = [usual, weighted, weighted_on_one, measured, left_out, left_out_on_one, fills]


def trained(folder, device, card=None):
    """Train a learner by each loss; return their weights, and what made the host wait in each update."""
    seen = {loss.__name__: [] for loss in LOSSES}
    with ts.Run(folder / device, seed=0, device=device, progress=False, doctor=False) as run:
        torch.manual_seed(0)
        nets = {loss: learner_of(run, loss) for loss in LOSSES}
        rows = torch.randn(6 * NUM_STEPS, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        for number, batch in enumerate(run.batches(run.data(rows, batch_size=6))):
            for loss, net in nets.items():
                before = len(card.reads) if card else 0
                net.update(partial(loss, net, number=number, rank=run.rank), batch)
                seen[loss.__name__].append(card.reads[before:] if card else [])
        weights = {
            loss.__name__: [each.detach().cpu() for each in net.parameters()] for loss, net in nets.items()
        }
    return weights, seen


def learner_of(run, loss):
    options = {"clip": ts.ClipNorm(1.0), "name": loss.__name__}
    return run.learner(Net(loss).double(), lambda p: torch.optim.AdamW(p, lr=1e-2), **options)


def main(folder):
    with (
        Card(count=2) as card,
        patch.object(process_group_setup, "collective_backend", lambda device: "gloo"),
    ):
        found = {"cuda": trained(folder, "cuda", card)}
    found["cpu"] = trained(folder, "cpu")
    torch.save(found, folder / f"{os.environ['RANK']}.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
