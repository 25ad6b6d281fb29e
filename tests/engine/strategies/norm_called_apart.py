# SPDX-License-Identifier: Apache-2.0
"""Batch normalisation that is called outside of updates; `python norm_called_apart.py FOLDER WAY` trains as one of the ranks."""

import os
import sys
from pathlib import Path

import torch
from torch import nn

import truestep as ts

ROWS = torch.randn(12, 4, generator=torch.Generator().manual_seed(0))


def scored_before(run, net, rows):
    scores = net(rows)
    net.update(lambda scores: scores.square().mean(1), scores)


def looked_at(run, net, rows):
    with torch.no_grad():
        net(rows)
    net.update(lambda rows: net(rows).square().mean(1), rows)


def looked_at_by_one(run, net, rows):
    if run.is_main:
        net(ROWS[:5])
    net.update(lambda rows: net(rows).square().mean(1), rows)


def tried_alike(run, net, rows):
    net(ROWS[:5])
    net.update(lambda rows: net(rows).square().mean(1), rows)


def looked_at_in_evaluation_mode(run, net, rows):
    net.eval()
    scores = net(rows).detach()
    net.train()
    net.update(lambda both: (net(both[0]) - both[1]).square().mean(1), (rows, scores))


def in_the_loss(run, net, rows):
    net.update(lambda rows: net(rows).square().mean(1), rows)


APART = (scored_before, looked_at, looked_at_by_one)
ALIKE = (tried_alike, looked_at_in_evaluation_mode, in_the_loss)
WAYS = {each.__name__: each for each in (*APART, *ALIKE)}


def main(folder, way):
    strategy = os.environ.get("STRATEGY", "ddp")
    run = ts.Run(Path(folder) / "run", seed=1, strategy=strategy, progress=False, saving=None, doctor=False)
    torch.manual_seed(1)
    layers = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 4))
    net = run.learner(layers, lambda p: torch.optim.SGD(p, lr=0.1), name="net")
    data = run.data(ROWS, batch_size=6)
    for _ in run.epochs(2):
        for rows in run.batches(data):
            WAYS[way](run, net, rows)


if __name__ == "__main__":
    main(*sys.argv[1:])
