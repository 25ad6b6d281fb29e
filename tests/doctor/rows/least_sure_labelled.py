# SPDX-License-Identifier: Apache-2.0
# expect:
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Subset

torch.manual_seed(1)
pool, chosen = [(torch.randn(8), i % 3) for i in range(60)], list(range(30))
model = nn.Linear(8, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    for x, y in DataLoader(Subset(pool, chosen), batch_size=6, shuffle=True):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    with torch.no_grad():
        unsure = model(torch.stack([row for row, _ in pool])).softmax(1).amax(1)
    unsure[chosen] = 2.0
    chosen.extend(unsure.argsort()[:3].tolist())
