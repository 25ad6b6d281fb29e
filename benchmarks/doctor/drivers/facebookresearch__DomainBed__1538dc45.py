# SPDX-License-Identifier: Apache-2.0
"""DANN.update with a gradient penalty, on two made-up domains of eight features that are handed over in one batch."""

import torch
from absent import stand_ins
from torch.utils.data import DataLoader, TensorDataset

stand_ins("torchvision", "torchvision.models")
from domainbed.algorithms import DANN

torch.manual_seed(0)
options = {
    "lr_d": 1e-3, "lr_g": 1e-3, "weight_decay_d": 0.0, "weight_decay_g": 0.0, "beta1": 0.5, "lambda": 1.0,
    "grad_penalty": 1.0, "d_steps_per_g_step": 1, "nonlinear_classifier": False,
    "mlp_width": 32, "mlp_depth": 3, "mlp_dropout": 0.0,
}  # fmt: skip
algorithm = DANN((8,), 3, 2, options)
labels = torch.randint(0, 3, (2, 320))
centres = torch.randn(3, 8)
inputs = centres[labels] + 0.3 * torch.randn(2, 320, 8) + torch.tensor([0.0, 1.0]).reshape(2, 1, 1)
domains = TensorDataset(inputs[0], labels[0], inputs[1], labels[1])
for epoch in range(4):
    for first, first_labels, second, second_labels in DataLoader(domains, batch_size=16, shuffle=True):
        losses = algorithm.update([(first, first_labels), (second, second_labels)])
    print(f"epoch {epoch} {losses}")
