# SPDX-License-Identifier: Apache-2.0
# planted: GRAD005
import torch, torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
ACCUM = 4
model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True, weight_decay=5e-4)


def batches(n):
    for _ in range(n):
        yield torch.randn(16, 1, 10, 10), torch.randint(0, 4, (16,))


def do_backward(l):
    l.backward()


step = 0
optimizer.zero_grad()
for x, y in batches(60):
    loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
    do_backward(loss)
    step += 1
    if step % ACCUM == 0:
        optimizer.step()
        optimizer.zero_grad()
