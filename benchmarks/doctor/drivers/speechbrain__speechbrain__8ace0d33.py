# SPDX-License-Identifier: Apache-2.0
"""A small training with a log likelihood as its loss, which gets below zero, and NewBobLRScheduler on the validation."""

import types

import torch
from absent import bare_packages, stand_ins
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

bare_packages("speechbrain", "speechbrain.nnet", "speechbrain.utils")
stand_ins("speechbrain.utils.checkpoints")
import sys

checkpoints = sys.modules["speechbrain.utils.checkpoints"]
checkpoints.register_checkpoint_hooks = checkpoints.mark_as_saver = checkpoints.mark_as_loader = lambda it: it
sys.modules["speechbrain.utils"].checkpoints = checkpoints
from speechbrain.nnet.lr_schedulers import NewBobLRScheduler

torch.manual_seed(0)
inputs = torch.randn(960, 6)
targets = 0.05 * inputs.sum(1, keepdim=True)
training = DataLoader(TensorDataset(inputs[:800], targets[:800]), batch_size=16, shuffle=True)
validation = DataLoader(TensorDataset(inputs[800:], targets[800:]), batch_size=32)
net = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 2))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
scheduler = NewBobLRScheduler(annealing_factor=0.5, improvement_threshold=0.0025)


def negative_log_likelihood(output, target):
    mean, log_deviation = output.chunk(2, 1)
    return (log_deviation + 0.5 * ((target - mean) / log_deviation.exp()).square()).mean()


for epoch in range(5):
    for x, y in training:
        optimizer.zero_grad()
        loss = negative_log_likelihood(net(x), y)
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        losses = [negative_log_likelihood(net(x), y).item() for x, y in validation]
    valid = sum(losses) / len(losses)
    _, lr = scheduler([types.SimpleNamespace(optim=optimizer)], epoch, valid)
    print(f"epoch {epoch} loss {loss.item():.4f} valid {valid:.4f} lr {lr:.5f}")
