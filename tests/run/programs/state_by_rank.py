# SPDX-License-Identifier: Apache-2.0
"""Keep in `run.state`, or in a tracked object, what is another value on each rank, where it is asked for."""

import sys
from pathlib import Path

import torch
from torch import nn

import truestep as ts


class Pool:
    """The newest rows that this process has seen."""

    def __init__(self):
        self.rows = torch.zeros(0, 4)

    def state_dict(self):
        return {"rows": self.rows}

    def load_state_dict(self, state):
        self.rows = state["rows"]


def main(folder, kind):
    run = ts.Run(folder / kind, saving=ts.Saving(every_steps=1), progress=False, quiet=True)
    net = run.learner(nn.Linear(4, 1), lambda p: torch.optim.SGD(p, lr=0.1))
    pool = Pool()
    if kind != "own":
        run.track(per_rank=kind == "pool of each rank", pool=pool)
    for rows in run.batches(run.data(torch.arange(64.0).reshape(16, 4) / 64, batch_size=8)):
        update = net.update(lambda rows: net(rows).squeeze(1), rows)
        run.state["loss"], run.state["nothing"] = float(update.loss), None
        if "pool" in kind:
            pool.rows = rows.repeat(100_000, 1) if kind == "large pool" else rows
        if kind == "own":
            run.state["hidden"] = {"rows": [torch.full((len(rows), 2), float(run.rank))]}
    run.close()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), sys.argv[2])
