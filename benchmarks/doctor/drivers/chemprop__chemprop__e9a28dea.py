# SPDX-License-Identifier: Apache-2.0
"""train() for three epochs on made-up molecules, as vectors, with two targets of which some are missing."""

import types

import torch
from absent import bare_packages, stand_ins
from torch import nn
from torch.utils.data import DataLoader

bare_packages("chemprop", "chemprop.train")
stand_ins("tensorboardX", "rdkit", "chemprop.data", "chemprop.args", "chemprop.models")
from chemprop.nn_utils import NoamLR
from chemprop.train.train import train

torch.manual_seed(0)


class Batch(list):
    def batch_graph(self):
        return torch.stack([molecule for molecule, _ in self])

    def features(self):
        return None

    atom_descriptors = features

    def targets(self):
        return [target for _, target in self]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 2))

    def forward(self, molecules, features, atom_descriptors):
        return self.layers(molecules)


molecules = torch.randn(640, 10)
values = [[float(one.sum()), float(one[0]) if number % 3 else None] for number, one in enumerate(molecules)]
loader = DataLoader(list(zip(molecules, values, strict=True)), batch_size=16, shuffle=True, collate_fn=Batch)
model = Model()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
rates = {"init_lr": [1e-4], "max_lr": [1e-3], "final_lr": [1e-4]}
scheduler = NoamLR(optimizer, warmup_epochs=[2.0], total_epochs=[3], steps_per_epoch=40, **rates)
args = types.SimpleNamespace(dataset_type="regression", grad_clip=None, batch_size=16, log_frequency=10)
num_iterations = 0
for epoch in range(3):
    print(f"Epoch {epoch}")
    num_iterations = train(
        model, loader, nn.MSELoss(reduction="none"), optimizer, scheduler, args, num_iterations
    )
