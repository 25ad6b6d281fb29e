# SPDX-License-Identifier: Apache-2.0
"""RectifiedFlow with the loss that has a perceptual part, a small network in the place of VGG, on made-up pictures.

Its products of times with pictures run only where the batch is as large as the width.
"""

import torch
from absent import bare_packages, stand_ins
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

bare_packages("rectified_flow_pytorch")
stand_ins(
    "torchdiffeq",
    "torchvision",
    "torchvision.utils",
    "torchvision.models",
    "ema_pytorch",
    "hyper_connections",
)
stand_ins("accelerate", "torchvision.transforms", "scipy.optimize")
from rectified_flow_pytorch.rectified_flow import PseudoHuberLossWithLPIPS, RectifiedFlow

torch.manual_seed(0)
pictures = torch.rand(320, 1, 1, 1) * torch.ones(320, 3, 8, 8) * 2 - 1
eyes = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3)).requires_grad_(False)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(4, 16, 3, padding=1), nn.SiLU(), nn.Conv2d(16, 3, 3, padding=1))

    def forward(self, noised, times):
        return self.layers(torch.cat([noised, times[:, None, None, None].expand(-1, 1, 8, 8)], 1))


loss_fn = PseudoHuberLossWithLPIPS(data_dim=3, lpips_kwargs={"vgg": eyes})
model = Model()
flow = RectifiedFlow(model, loss_fn=loss_fn, immiscible=False)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(3):
    for (picture,) in DataLoader(TensorDataset(pictures), batch_size=8, shuffle=True):
        loss = flow(picture)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
