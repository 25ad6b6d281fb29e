# SPDX-License-Identifier: Apache-2.0
"""main.py's capsules with 32 channels on made-up digits; `cuda()` gives the tensor itself, sizes are rounded as in Python 2."""

import sys
from pathlib import Path

import torch
from absent import stand_ins
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

stand_ins("torchvision.utils", "torchvision.datasets", "torchvision.transforms")
torch.Tensor.cuda = nn.Module.cuda = lambda given, *_: given
plain_linear = nn.Linear
nn.Linear = lambda before, after: plain_linear(int(before), int(after))
sys.path.insert(0, str(Path.cwd()))
from capsule_network import CapsuleNetwork

torch.manual_seed(0)
labels = torch.randint(0, 10, (192,))
images = torch.rand(10, 1, 28, 28)[labels] + 0.1 * torch.randn(192, 1, 28, 28)
network = CapsuleNetwork(
    image_width=28,
    image_height=28,
    image_channels=1,
    conv_inputs=1,
    conv_outputs=32,
    num_primary_units=8,
    primary_unit_size=32 * 6 * 6,
    num_output_units=10,
    output_unit_size=16,
)
optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
for epoch in range(2):
    network.train()
    for image, label in DataLoader(TensorDataset(images, labels), batch_size=16, shuffle=True):
        one_hot = torch.zeros(len(label), 10)
        one_hot[torch.arange(len(label)), label] = 1.0
        optimizer.zero_grad()
        output = network(image)
        loss = network.loss(image, output, one_hot)
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
