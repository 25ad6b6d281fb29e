# SPDX-License-Identifier: Apache-2.0
# clean
import torch
from torch import nn


def build():
    m = nn.Sequential(nn.Linear(8, 16), nn.ELU(), nn.Linear(16, 1))
    o = torch.optim.RMSprop(m.parameters(), lr=1e-3)
    return m, o, torch.optim.lr_scheduler.StepLR(o, step_size=10, gamma=0.5)


def one_epoch(m, o, s, data):
    for x, y in data:
        o.zero_grad()
        l = nn.functional.smooth_l1_loss(m(x).squeeze(-1), y)
        l.backward()
        o.step()


def main():
    torch.manual_seed(0)
    m, o, s = build()
    X = torch.randn(400, 8)
    Y = X @ torch.randn(8)
    for ep in range(20):
        p = torch.randperm(400)
        one_epoch(m, o, s, [(X[i], Y[i]) for i in p.split(10)])
        s.step()


main()
