# SPDX-License-Identifier: Apache-2.0
"""The program as Fabric's quick start and its page on checkpoints have it: `python with_fabric.py FOLDER`."""

import sys
from pathlib import Path

import lightning as L
import torch
import torch.nn.functional as F
from digits import BATCH, EPOCHS, network, test_set, train_set
from torch.utils.data import DataLoader

fabric = L.Fabric()
fabric.launch()
fabric.seed_everything(0)
net = network()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
net, optimizer = fabric.setup(net, optimizer)
train = fabric.setup_dataloaders(DataLoader(train_set, batch_size=BATCH, shuffle=True))
test = fabric.setup_dataloaders(DataLoader(test_set, batch_size=512))
state = {"net": net, "optimizer": optimizer, "epoch": 0}
checkpoint = Path(sys.argv[1], "checkpoint.ckpt")
if checkpoint.exists():
    fabric.load(checkpoint, state)
while state["epoch"] < EPOCHS:
    net.train()
    for images, labels in train:
        optimizer.zero_grad()
        fabric.backward(F.cross_entropy(net(images), labels))
        optimizer.step()
    net.eval()
    with torch.no_grad():
        correct = sum((net(images).argmax(1) == labels).sum() for images, labels in test)
    fabric.print(f"accuracy {correct / len(test_set):.3f}")
    state["epoch"] += 1
    fabric.save(checkpoint, state)
