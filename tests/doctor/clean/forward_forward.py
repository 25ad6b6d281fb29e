# SPDX-License-Identifier: Apache-2.0
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


class Layer(nn.Linear):
    """Trained by itself: large activity for true inputs, small for false ones."""

    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs)
        self.optimizer = torch.optim.Adam(self.parameters(), lr=0.01)

    def forward(self, x):
        return F.relu(super().forward(x / (x.norm(2, 1, keepdim=True) + 1e-4)))

    def train_on(self, positive, negative):
        for _ in range(15):
            good, bad = self(positive).square().mean(1), self(negative).square().mean(1)
            loss = F.softplus(torch.cat([2.0 - good, bad - 2.0])).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return self(positive).detach(), self(negative).detach()


layers = [Layer(10, 32), Layer(32, 32)]
positive, negative = torch.randn(64, 10) + 1, torch.randn(64, 10) - 1
for layer in layers:
    positive, negative = layer.train_on(positive, negative)
