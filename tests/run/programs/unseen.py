# SPDX-License-Identifier: Apache-2.0
"""A rank that is gone, and gloo does not tell: `python unseen.py FOLDER WHERE`. Rank 1 is stopped in its second update, not killed.

WHERE: `loss`, so that rank 0 waits for it at a meeting, or `backward`, so that it waits inside of torch.
"""

import os
import signal
import sys
from pathlib import Path

import torch
from torch import nn

import truestep as ts
from truestep.engine.processes import store_notes


class Unseen(store_notes.RankProcess):
    """What is another process is gone, once its file says so."""

    @property
    def trouble(self):
        return "is gone" if STOPPED.exists() and self.pid != os.getpid() else None


STOPPED = Path(sys.argv[1]) / "stopped"
store_notes.RankProcess = Unseen
torch.set_num_threads(1)
options = {"progress": False, "quiet": True, "doctor": False, "timeout_seconds": 90.0}
with ts.Run(Path(sys.argv[1]) / "run", strategy="fsdp", **options) as run:
    net = run.learner(nn.Linear(3, 3), lambda p: torch.optim.SGD(p, lr=0.1))

    def stop(_=None):
        STOPPED.touch()
        os.kill(os.getpid(), signal.SIGSTOP)

    def loss(rows):
        stops = run.step == 2 and run.rank == 1
        if stops and sys.argv[2] == "loss":
            stop()
        values = net(rows).square().mean(1)
        if stops:
            values.register_hook(stop)
        return values

    for _ in run.steps(3):
        net.update(loss, torch.ones(2, 3))
