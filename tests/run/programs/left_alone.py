# SPDX-License-Identifier: Apache-2.0
"""Rank 0, whose process holds the store, ends without a word; then rank 1 meets a bad sample: `python left_alone.py FOLDER`."""

import os
import sys
import time
from pathlib import Path

import torch
from torch import nn

import truestep as ts

RANK = int(os.environ["RANK"])


def losses(net, gone):
    """Squared outputs, until rank 0 is gone."""

    def of_batch(rows):
        if RANK == 0:
            gone.write_text("now")
            os._exit(0)
        while not gone.exists():
            time.sleep(0.05)
        time.sleep(0.2)
        raise ValueError("a bad sample")

    return of_batch


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    with ts.Run(folder / "run", progress=False, quiet=True, doctor=False) as run:
        net = run.learner(nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.1), name="net")
        net.update(losses(net, folder / "gone"), torch.ones(2, 2))
