# SPDX-License-Identifier: Apache-2.0
"""A regressor trained with LBFGS, five iterations a batch."""

import numpy as np
import torch
from absent import stand_ins
from torch import nn

stand_ins("pkg_resources")
import sys

sys.modules["pkg_resources"].parse_version = lambda text: 0
from skorch.regressor import NeuralNetRegressor

torch.manual_seed(0)
np.random.seed(0)
inputs = np.random.randn(640, 8).astype("float32")
targets = np.tanh(inputs[:, :3].sum(1, keepdims=True)).astype("float32")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.Linear(24, 1))

    def forward(self, X):
        return self.layers(X)


net = NeuralNetRegressor(
    Net,
    optimizer=torch.optim.LBFGS,
    optimizer__max_iter=5,
    lr=0.1,
    max_epochs=6,
    batch_size=64,
    train_split=None,
)
net.fit(inputs, targets)
print("error", float(((net.predict(inputs) - targets) ** 2).mean()))
