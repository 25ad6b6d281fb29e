# SPDX-License-Identifier: Apache-2.0
"""The program as Accelerate's quick tour and its page on checkpoints have it: `python with_accelerate.py FOLDER`."""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from digits import BATCH, EPOCHS, network, test_set, train_set
from torch.utils.data import DataLoader

set_seed(0)
accelerator = Accelerator()
net = network()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
train = DataLoader(train_set, batch_size=BATCH, shuffle=True)
test = DataLoader(test_set, batch_size=512)
net, optimizer, train, test = accelerator.prepare(net, optimizer, train, test)
saved = sorted(Path(sys.argv[1]).glob("epoch_*"))
if saved:
    accelerator.load_state(saved[-1])
for epoch in range(len(saved), EPOCHS):
    net.train()
    for images, labels in train:
        optimizer.zero_grad()
        accelerator.backward(F.cross_entropy(net(images), labels))
        optimizer.step()
    net.eval()
    correct = 0
    with torch.no_grad():
        for images, labels in test:
            found, labels = accelerator.gather_for_metrics((net(images).argmax(1), labels))
            correct += (found == labels).sum()
    accelerator.print(f"accuracy {correct / len(test_set):.3f}")
    accelerator.save_state(Path(sys.argv[1], f"epoch_{epoch:02d}"))
