# SPDX-License-Identifier: Apache-2.0
"""A small network that learns disparities with MonodepthLoss, two scales, on made-up pairs of pictures."""

import torch
from loss import MonodepthLoss
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
wide = nn.functional.interpolate(torch.rand(160, 3, 4, 8), size=(16, 36), mode="bilinear")
pairs = TensorDataset(wide[..., :32].contiguous(), wide[..., 4:].contiguous())


class Depth(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.ELU(), nn.Conv2d(16, 2, 3, padding=1), nn.Sigmoid()
        )

    def forward(self, left):
        shifts = 0.3 * self.body(left)
        return [shifts, nn.functional.avg_pool2d(shifts, 2)]


net = Depth()
criterion = MonodepthLoss(n=2, SSIM_w=0.85, disp_gradient_w=0.1, lr_w=1.0)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for epoch in range(3):
    for left, right in DataLoader(pairs, batch_size=8, shuffle=True):
        optimizer.zero_grad()
        loss = criterion(net(left), [left, right])
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
