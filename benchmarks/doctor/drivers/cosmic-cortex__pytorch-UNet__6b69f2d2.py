# SPDX-License-Identifier: Apache-2.0
"""Model.fit_dataset with the small U-Net of train.py on made-up pictures of three classes."""

import torch
from absent import bare_packages, stand_ins
from torch import nn
from torch.utils.data import TensorDataset

bare_packages("unet")
stand_ins("skimage", "skimage.io")
from unet.model import Model
from unet.unet import UNet2D

torch.manual_seed(0)
masks = torch.randint(0, 3, (96, 4, 4)).repeat_interleave(4, 1).repeat_interleave(4, 2)
pictures = nn.functional.one_hot(masks, 3).permute(0, 3, 1, 2).float() + 0.3 * torch.randn(96, 3, 16, 16)
net = UNet2D(3, 3, [10, 20, 30, 40])
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
model = Model(net, nn.CrossEntropyLoss(), optimizer, "results", device="cpu")
model.fit_dataset(
    TensorDataset(pictures[:80], masks[:80]),
    n_epochs=4,
    n_batch=8,
    shuffle=True,
    val_dataset=TensorDataset(pictures[80:], masks[80:]),
    save_freq=0,
    verbose=True,
)
