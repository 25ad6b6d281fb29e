# SPDX-License-Identifier: Apache-2.0
# expect: DATA040
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
normal = torch.randn(400, 12) @ torch.randn(12, 12)
ae = nn.Sequential(nn.Linear(12, 4), nn.ReLU(), nn.Linear(4, 12))
opt = torch.optim.Adam(ae.parameters(), 1e-2)
for e in range(3):
    for (x,) in DataLoader(TensorDataset(normal), 40, shuffle=True):
        opt.zero_grad()
        nn.functional.mse_loss(ae(x), x).backward()
        opt.step()
ae.eval()
with torch.no_grad():
    err = ((ae(normal) - normal) ** 2).mean(1)
    print(err.quantile(0.95))
