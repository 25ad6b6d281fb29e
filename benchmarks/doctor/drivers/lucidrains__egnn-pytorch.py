# SPDX-License-Identifier: Apache-2.0
"""An EGNN layer trained to take noise off the coordinates of made-up point clouds, whose centres are all at zero."""

import inspect
import os

import torch
import torch.nn.functional as F
from absent import bare_packages, stand_ins
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

bare_packages("egnn_pytorch")
stand_ins("torch_geometric", "torch_geometric.nn", "torch_geometric.typing")
import sys

sys.modules["torch_geometric.nn"].MessagePassing = nn.Module
for name in ("Adj", "Size", "OptTensor", "Tensor"):
    setattr(sys.modules["torch_geometric.typing"], name, object)
from egnn_pytorch.egnn_pytorch import EGNN

torch.manual_seed(0)
kinds = torch.randint(0, 4, (320, 8))
clouds = torch.randn(320, 8, 3)
clouds = clouds - clouds.mean(1, keepdim=True)
noisy = clouds + 0.1 * torch.randn(320, 8, 3)
masks = torch.arange(8) < torch.randint(5, 9, (320, 1))
loader = DataLoader(TensorDataset(kinds, noisy, clouds, masks), batch_size=16, shuffle=True)
options = {
    "04228e82": {"norm_coors": True},
    "24872cd5": {"num_nearest_neighbors": 4},
}  # in which these faults are
embed = nn.Embedding(4, 16)
layer = EGNN(dim=16, **options.get(os.environ["FAULTY"][-8:], {}))
takes_mask = "mask" in inspect.signature(layer.forward).parameters
optimizer = torch.optim.Adam([*embed.parameters(), *layer.parameters()], lr=1e-3)

for epoch in range(3):
    for kind, start, end, mask in loader:
        _, moved = layer(embed(kind), start, **({"mask": mask} if takes_mask else {}))
        loss = F.mse_loss(moved[mask], end[mask])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
