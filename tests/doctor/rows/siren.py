# SPDX-License-Identifier: Apache-2.0
# expect:
import torch
from torch import nn

torch.manual_seed(0)
c = torch.stack(torch.meshgrid(torch.linspace(-1, 1, 16), torch.linspace(-1, 1, 16), indexing="ij"), -1).view(
    -1, 2
)
v = (c.prod(1, keepdim=True) * 3).sin()
net = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1))
opt = torch.optim.Adam(net.parameters(), 1e-2)
for i in range(40):
    loss = (net(c) - v).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if i % 20 == 0:
        with torch.no_grad():
            print("psnr", (-10 * (net(c) - v).pow(2).mean().log10()).item())
