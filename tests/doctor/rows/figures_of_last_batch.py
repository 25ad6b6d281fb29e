# SPDX-License-Identifier: Apache-2.0
# expect: EVAL048 EVAL048
import torch
from torch import nn

torch.manual_seed(1)
X = torch.randn(400, 10)
Y = (X[:, 0] > 0).float()
net = nn.Sequential(nn.Linear(10, 8), nn.Tanh(), nn.Linear(8, 1), nn.Flatten(0))
opt = torch.optim.RMSprop(net.parameters())


def check(n=0):
    net.eval()
    total = 0
    with torch.no_grad():
        for part in torch.arange(300, 400).split(24):
            value = nn.functional.binary_cross_entropy_with_logits(net(X[part]), Y[part])
            hits = (net(X[part]) > 0).float() == Y[part]
            total += hits.float().mean()
    print("loss", round(value.item(), 5))
    print("share", (total / 100).item())
    net.train()


for epoch in range(3):
    for part in torch.randperm(300).split(50):
        opt.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(net(X[part]), Y[part]).backward()
        opt.step()
    check()
