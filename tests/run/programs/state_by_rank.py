# SPDX-License-Identifier: Apache-2.0
"""Keep in `run.state` what is another value on each rank, where it is asked for."""

import sys
from pathlib import Path

import torch
from torch import nn

import truestep as ts


def main(folder, kind):
    run = ts.Run(folder / kind, saving=ts.Saving(every_steps=1), progress=False, quiet=True)
    net = run.learner(nn.Linear(4, 1), lambda p: torch.optim.SGD(p, lr=0.1))
    for rows in run.batches(run.data(torch.ones(16, 4), batch_size=8)):
        update = net.update(lambda rows: net(rows).squeeze(1), rows)
        run.state["loss"], run.state["nothing"] = float(update.loss), None
        if kind == "own":
            run.state["hidden"] = {"rows": [torch.full((len(rows), 2), float(run.rank))]}
    run.close()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), sys.argv[2])
