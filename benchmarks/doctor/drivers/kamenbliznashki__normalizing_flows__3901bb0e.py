# SPDX-License-Identifier: Apache-2.0
"""maf.py's own train_and_evaluate, a conditional MADE on made-up points of two classes."""

import types

import torch
from absent import stand_ins
from torch.utils.data import DataLoader, TensorDataset

stand_ins("data", "matplotlib", "matplotlib.pyplot")
import maf

torch.manual_seed(0)
args = types.SimpleNamespace(
    device=torch.device("cpu"),
    cond_label_size=2,
    batch_size=16,
    start_epoch=0,
    n_epochs=3,
    log_interval=10,
    results_file="results.txt",
    output_dir=".",
    dataset="POINTS",
)
labels = torch.randint(0, 2, (384,))
points = torch.randn(384, 4) + 2 * labels[:, None]
onehot = torch.eye(2)[labels]
train = DataLoader(TensorDataset(points[:320], onehot[:320]), batch_size=16, shuffle=True)
test = DataLoader(TensorDataset(points[320:], onehot[320:]), batch_size=16)
model = maf.MAF(2, 4, 32, 1, 2, "relu", "sequential", batch_norm=False)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
maf.train_and_evaluate(model, train, test, optimizer, args)
