# SPDX-License-Identifier: Apache-2.0
"""A small network with poly_lr_scheduler() of train.py, called as its main() does."""

import torch
from absent import stand_ins
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

stand_ins("click", "yaml", "torchnet", "torchnet.logger", "torchnet.meter", "tensorboardX", "addict", "cv2")
stand_ins(
    "libs", "libs.datasets", "libs.models", "libs.utils", "libs.utils.loss", "libs.utils.metric", "libs.loss"
)
stand_ins("datasets", "models", "utils", "loss", "visdom", "omegaconf", "torchvision", "torchnet.engine")
from train import poly_lr_scheduler

torch.manual_seed(0)
images = torch.randn(320, 3, 8, 8)
labels = images.argmax(1)
net = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 3, 1))
groups = [{"params": net[0].parameters(), "lr": 1e-2}, {"params": net[2].parameters(), "lr": 1e-1}]
optimizer = torch.optim.SGD(groups, lr=1e-2, momentum=0.9)
criterion = nn.CrossEntropyLoss(ignore_index=-1)
iteration = 0
for epoch in range(4):
    for image, label in DataLoader(TensorDataset(images, labels), batch_size=8, shuffle=True):
        iteration += 1
        poly_lr_scheduler(
            optimizer, init_lr=1e-2, iter=iteration - 1, lr_decay_iter=10, max_iter=160, power=0.9
        )
        optimizer.zero_grad()
        loss = criterion(net(image), label)
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
