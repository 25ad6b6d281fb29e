# SPDX-License-Identifier: Apache-2.0
"""Accelerate: accumulated gradients, clipping when they are synchronised, figures gathered over the evaluation."""

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
accelerator = Accelerator(gradient_accumulation_steps=2, cpu=True)
x = torch.randn(400, 5)
y = (x[:, :1] * 2 - x[:, 1:2]) + 0.1 * torch.randn(400, 1)
net = nn.Sequential(nn.Linear(5, 24), nn.Tanh(), nn.Linear(24, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
train = DataLoader(TensorDataset(x[:320], y[:320]), batch_size=8, shuffle=True)
held = DataLoader(TensorDataset(x[320:], y[320:]), batch_size=24)
net, optimizer, train, held = accelerator.prepare(net, optimizer, train, held)

for epoch in range(3):
    net.train()
    for inputs, targets in train:
        with accelerator.accumulate(net):
            loss = F.smooth_l1_loss(net(inputs), targets)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    net.eval()
    errors = []
    with torch.no_grad():
        for inputs, targets in held:
            errors.append(accelerator.gather_for_metrics((net(inputs) - targets).abs()))
    accelerator.print(f"epoch {epoch}: absolute error {torch.cat(errors).mean().item():.4f}")
