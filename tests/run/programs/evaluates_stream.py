# SPDX-License-Identifier: Apache-2.0
"""An evaluation by divided weights, of a stream of which rank 1 reads so many samples less.

`python evaluates_stream.py FOLDER LESS`
"""

import sys

import torch
from torch import nn

import truestep as ts

run = ts.Run(sys.argv[1], seed=0, device="cpu", progress=False, quiet=True, doctor=False, strategy="fsdp")
net = run.learner(nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.1))
rows = torch.arange(90.0).view(45, 2)[: 45 - int(sys.argv[2]) * run.rank]
net.evaluate(lambda batch: net(batch)[:, 0], run.data(lambda: iter(rows), batch_size=4))
