# SPDX-License-Identifier: Apache-2.0
# expect:
import torch
from torch import nn

torch.manual_seed(0)
X = torch.randn(500, 6)
y = (X[:, 0] > 0).long()
test = torch.randn(200, 6)
ty = (test[:, 0] > 0).long()
have = torch.randperm(500)[:40]
net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))
opt = torch.optim.Adam(net.parameters(), 1e-2)
for rnd in range(4):
    net.train()
    for ep in range(3):
        for b in have[torch.randperm(len(have))].split(20):
            opt.zero_grad()
            nn.functional.cross_entropy(net(X[b]), y[b]).backward()
            opt.step()
    net.eval()
    with torch.no_grad():
        p = net(X).softmax(1)
        ent = -(p * p.log()).sum(1)
        ent[have] = -1
        have = torch.cat([have, ent.topk(20).indices])
        print((net(test).argmax(1) == ty).float().mean().item())
