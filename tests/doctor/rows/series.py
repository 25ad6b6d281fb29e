# SPDX-License-Identifier: Apache-2.0
# expect:
import torch
from torch import nn

torch.manual_seed(0)
t = torch.arange(1200).float()
s = 0.004 * t + torch.sin(t / 9)
w = s.unfold(0, 25, 1)
X, y = w[:, :24].unsqueeze(-1), w[:, 24]


class R(nn.Module):
    def __init__(self):
        super().__init__()
        self.g = nn.GRU(1, 12, batch_first=True)
        self.o = nn.Linear(12, 1)

    def forward(self, x):
        return self.o(self.g(x)[0][:, -1]).squeeze(1)


net = R()
opt = torch.optim.Adam(net.parameters(), 1e-2)
for e in range(3):
    net.train()
    for b in torch.randperm(800).split(64):
        opt.zero_grad()
        nn.functional.mse_loss(net(X[b]), y[b]).backward()
        opt.step()
    net.eval()
    with torch.no_grad():
        print(nn.functional.l1_loss(net(X[900:]), y[900:]).item())
with torch.no_grad():
    whole = net(X)
print((whole - y).abs().max())
