# SPDX-License-Identifier: Apache-2.0
"""The masked CrossEntropyLoss on made-up pictures of which some are labelled in part and some not at all."""

import torch
from absent import bare_packages, stand_ins
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

bare_packages("neuralnets", "neuralnets.util")
stand_ins("scipy.ndimage.morphology", "skimage", "neuralnets.util.tools")
from neuralnets.util.losses import CrossEntropyLoss

torch.manual_seed(0)
labels = torch.randint(0, 2, (160, 4, 4)).repeat_interleave(4, 1).repeat_interleave(4, 2)
pictures = labels[:, None].float() + 0.3 * torch.randn(160, 1, 16, 16)
known = (torch.rand(160, 16, 16) < 0.5) & (torch.rand(160, 1, 1) < 0.4)
loader = DataLoader(TensorDataset(pictures, labels, known), batch_size=2, shuffle=True)
net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 2, 3, padding=1))
criterion = CrossEntropyLoss()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for epoch in range(3):
    total = 0.0
    for picture, label, mask in loader:
        optimizer.zero_grad()
        loss = criterion(net(picture), label, mask=mask)
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"epoch {epoch} loss {total / len(loader):.4f}")
