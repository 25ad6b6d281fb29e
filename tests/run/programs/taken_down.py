# SPDX-License-Identifier: Apache-2.0
"""Two trainings, behind each of which the script takes torch's process groups down itself: `python taken_down.py FOLDER`."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist

import truestep as ts


def trained(folder):
    run = ts.Run(folder, progress=False, quiet=True, doctor=False)
    net = run.learner(torch.nn.Linear(3, 2), lambda p: torch.optim.SGD(p, lr=0.1))
    rows = run.data(torch.ones(8, 3), batch_size=4)
    for _ in run.epochs(1):
        for batch in run.batches(rows):
            net.update(lambda part: net(part).square().sum(1), batch)
    assert run.step == 2
    dist.destroy_process_group()


if __name__ == "__main__":
    for name in ("first", "second"):
        trained(Path(sys.argv[1]) / name)
