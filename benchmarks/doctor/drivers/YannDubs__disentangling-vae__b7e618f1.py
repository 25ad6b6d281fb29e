# SPDX-License-Identifier: Apache-2.0
"""Trainer and Evaluator with a VAE of Burgess, on made-up pictures of one square each."""

import numpy as np
import torch
from absent import stand_ins
from torch.utils.data import DataLoader, TensorDataset

stand_ins("openTSNE", "umap", "wandb", "utils", "utils.fid", "imageio")
from disvae.evaluate import Evaluator
from disvae.models.losses import get_loss_f
from disvae.models.vae import init_specific_model
from disvae.training import Trainer

np.product = np.prod  # its name of old
torch.manual_seed(0)
corners = torch.randint(0, 24, (192, 2))
pictures = torch.zeros(192, 1, 32, 32)
for picture, (row, column) in zip(pictures, corners.tolist(), strict=True):
    picture[0, row : row + 8, column : column + 8] = 1.0
labels = torch.zeros(192)
train = DataLoader(TensorDataset(pictures[:128], labels[:128]), batch_size=16, shuffle=True)
test = DataLoader(TensorDataset(pictures[128:], labels[128:]), batch_size=16)
model = init_specific_model("Burgess", (1, 32, 32), 4)
loss_f = get_loss_f("VAE", rec_dist="bernoulli", reg_anneal=0)
optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
trainer = Trainer(model, optimizer, loss_f, device="cpu", save_dir=".", is_progress_bar=False)
evaluator = Evaluator(model, loss_f, device="cpu", save_dir=".", is_progress_bar=False, use_wandb=False)
trainer(train, epochs=2, checkpoint_every=10)
print(evaluator(test, is_metrics=False, is_losses=True))
