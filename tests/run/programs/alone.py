# SPDX-License-Identifier: Apache-2.0
"""What one rank does by itself where all must: `python alone.py WHAT FOLDER`."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

import truestep as ts
from truestep.engine.processes import rank_liveness

rank_liveness.GRACE_SECONDS = 0.5
what, folder = sys.argv[1], Path(sys.argv[2])
divides = what.startswith("file")
run = ts.Run(
    folder / "run", seed=0, strategy="fsdp" if divides else "ddp", progress=False, quiet=True, doctor=False
)
net = run.learner(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8)), lambda p: torch.optim.SGD(p, lr=0.1))
train = run.data(torch.rand(16, 4), batch_size=8)


def do():
    """Make the call of this name."""
    state, file = net.state_dict(), folder / "weights.pt"
    if what == "files of all":
        torch.save(state, folder / f"{run.rank}.pt")
        whole = {
            name: each.full_tensor() if hasattr(each, "full_tensor") else each for name, each in state.items()
        }
        if run.is_main:
            torch.save(whole, file)
    elif what == "file of all":
        torch.save(state, file)
    elif what.startswith("file") and run.is_main:
        torch.save({"model": state, "epoch": 1}, file)
    elif what.startswith("barrier") and run.is_main:
        dist.barrier()


for _ in run.epochs(1):
    for batch in run.batches(train):
        net.update(lambda rows: net(rows).square().mean(1), batch)
    if "behind" not in what:
        do()
if "behind" in what:
    do()
