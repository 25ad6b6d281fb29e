# SPDX-License-Identifier: Apache-2.0
"""A regressor with LRScheduler of ReduceLROnPlateau, which watches the validation loss, for 30 epochs."""

import numpy as np
import torch
from absent import stand_ins
from torch import nn

stand_ins("pkg_resources")
import sys

sys.modules["pkg_resources"].parse_version = lambda text: 0
from skorch.callbacks import LRScheduler
from skorch.regressor import NeuralNetRegressor

torch.manual_seed(0)
np.random.seed(0)
inputs = np.random.randn(320, 8).astype("float32")
targets = inputs[:, :3].sum(1, keepdims=True).astype("float32")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.Linear(24, 1))

    def forward(self, X):
        return self.layers(X)


schedule = LRScheduler(policy="ReduceLROnPlateau", monitor="valid_loss", patience=3)
net = NeuralNetRegressor(Net, lr=0.05, max_epochs=30, batch_size=32, callbacks=[("schedule", schedule)])
net.fit(inputs, targets)
print("rate", net.optimizer_.param_groups[0]["lr"])
