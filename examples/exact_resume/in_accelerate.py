# SPDX-License-Identifier: Apache-2.0
"""A training with Accelerate, stopped at step 24 of 48: it goes on, and ends with the bits of one that was not stopped.

python examples/exact_resume/in_accelerate.py
"""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader

import truestep as ts


def train(directory, stop_at=None):
    set_seed(0)
    accelerator = Accelerator(cpu=True)
    net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1), nn.Linear(8, 1))
    loader = DataLoader(torch.randn(64, 4), batch_size=4, shuffle=True)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    net, optimizer, loader = accelerator.prepare(net, optimizer, loader)
    exact = ts.accelerate.ExactResume(  # added
        accelerator, loader, directory, every_n_batches=5
    )
    for epoch in range(exact.epoch, 3):  # added
        for index, batch in enumerate(exact, exact.batch):  # added
            accelerator.backward(net(batch).square().mean())
            optimizer.step()
            optimizer.zero_grad()
            if (epoch, index) == stop_at:
                raise RuntimeError("stands for a kill")
    exact.close()
    return net[0].weight.detach()


try:
    train("runs/stopped", stop_at=(1, 7))
except RuntimeError as error:
    print(error)
print("equal bits:", torch.equal(train("runs/stopped"), train("runs/whole")))
