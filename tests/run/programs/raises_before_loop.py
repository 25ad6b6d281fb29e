# SPDX-License-Identifier: Apache-2.0
"""One rank raises before a loop begins, and nobody catches it: `python raises_before_loop.py FOLDER HOW WHO`."""

import os
import sys
from pathlib import Path

import torch

import truestep as ts

RANK = int(os.environ["RANK"])
HOW, WHO = sys.argv[2], int(sys.argv[3])


def read_rows(path):
    return torch.load(path)  # the cause


def make(parameters):
    return torch.optim.SGD(parameters, lr=-1.0 if RANK == WHO else 0.1)


run = ts.Run(Path(sys.argv[1]) / "run", progress=False, quiet=True, timeout_seconds=20)
if RANK == WHO:
    if HOW == "a file that is not there":
        read_rows("no such file.pt")
    if HOW == "its own check":
        raise ValueError("fold 7 has no images")  # the cause
    if HOW == "columns of two lengths":
        run.data((torch.ones(8, 2), torch.ones(7)), batch_size=4)  # the cause
layers = torch.nn.Linear(2, 1)
made = make if HOW == "an optimizer" else lambda p: torch.optim.SGD(p, lr=0.1)
net = run.learner(layers, made, name="net")  # the cause
if RANK == WHO and HOW == "behind the learner":
    assert sum(each.numel() for each in layers.parameters()) == 4, "another network"  # the cause
source = run.data(torch.ones(8, 2), batch_size=4)
for _ in run.epochs(1):
    for batch in run.batches(source):
        net.update(lambda rows: net(rows).squeeze(1).square(), batch)
