# SPDX-License-Identifier: Apache-2.0
"""A batch of one row on two ranks, whose body looks at its first row.

`python no_rows.py FOLDER HOW STRATEGY`; it prints how often the loss was called here.
"""

import sys

import torch
from torch import nn

import truestep as ts

run = ts.Run(sys.argv[1], seed=0, device="cpu", progress=False, doctor=False, strategy=sys.argv[3])
net = run.learner(nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.1))
calls = []


def loss(rows):
    calls.append(len(rows))
    return net(rows)[:, 0].square()


for batch in run.batches(run.data(torch.ones(3, 2), batch_size=1)):
    if sys.argv[2] == "looks" or len(batch):
        first = batch[0]
    net.update(loss, batch)
print("done", run.step, "calls", len(calls))
