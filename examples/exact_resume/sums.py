# SPDX-License-Identifier: Apache-2.0
"""Sums of an epoch with Accelerate: stopped at step 28 of 32 and started again, they hold all batches of the epoch.

python examples/exact_resume/sums.py
"""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader

import truestep as ts


class Sums:
    def __init__(self):
        self.loss, self.count = 0.0, 0

    def state_dict(self):
        return vars(self).copy()

    def load_state_dict(self, state):
        vars(self).update(state)


def train(directory, stop_at=None):
    set_seed(0)
    accelerator = Accelerator(cpu=True)
    net, loader = nn.Linear(4, 1), DataLoader(torch.randn(64, 4), batch_size=4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net, optimizer, loader = accelerator.prepare(net, optimizer, loader)
    sums = Sums()
    accelerator.register_for_checkpointing(sums)  # before exact is made
    exact = ts.accelerate.ExactResume(accelerator, loader, directory, every_n_batches=5)
    for epoch in range(exact.epoch, 2):
        if exact.batch == 0:
            sums.loss, sums.count = 0.0, 0
        for index, batch in enumerate(exact, exact.batch):
            loss = net(batch).square().mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            sums.loss, sums.count = sums.loss + loss.item(), sums.count + 1
            if (epoch, index) == stop_at:
                raise RuntimeError("stands for a kill")
        print(f"{sums.count} batches, mean loss {sums.loss / sums.count:.4f}")
    exact.close()


try:
    train("runs/stopped-sums", stop_at=(1, 12))
except RuntimeError as error:
    print(error)
train("runs/stopped-sums")
