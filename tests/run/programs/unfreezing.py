# SPDX-License-Identifier: Apache-2.0
"""Train as one of several ranks, and switch layers at epoch 1; asked to stop after step STOP. FOLDER STRATEGY STOP FILE SWITCH"""

import os
import signal
import sys

import torch
from torch import nn

import truestep as ts

directory, strategy, stop, exported, switch = sys.argv[1:]
torch.manual_seed(0)
if switch == "unfrozen":
    module = nn.Sequential(
        nn.Linear(4, 6), nn.ReLU(), nn.Sequential(nn.Linear(6, 6), nn.ReLU()), nn.Linear(6, 3)
    )
    module[0].requires_grad_(False)
else:
    inner = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Dropout(0.3))
    module = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), inner, nn.Linear(6, 3))
points = torch.randn(12, 4, generator=torch.Generator().manual_seed(1))
with ts.Run(directory, progress=False, strategy=strategy, saving=ts.Saving(background=False)) as run:
    net = run.learner(module, lambda p: torch.optim.AdamW(p, lr=0.1), ema=ts.EMA(decay=0.9))
    data = run.data(points, batch_size=4, shuffle=True)
    for epoch in run.epochs(3):
        if epoch == 1 and switch == "unfrozen":
            ts.unfreeze(net, "0")
            ts.freeze(net, "2.*")
        if epoch == 1 and switch == "held":
            ts.freeze(net, "2.1", statistics=True)
            net.module[2][2].p = 0.1
        if epoch == 1 and switch == "modes":
            net.module[2].eval()
        for batch in run.batches(data):
            net.update(lambda b: net(b).square().sum(1), batch)
            if run.step == int(stop) and run.is_main:
                os.kill(os.getpid(), signal.SIGTERM)
if run.is_main:
    ts.export_weights(directory, exported)
