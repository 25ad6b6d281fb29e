# SPDX-License-Identifier: Apache-2.0
"""The program as Lightning's "Lightning in 15 minutes" and its page on resuming have it: `python with_lightning.py FOLDER`."""

import sys

import lightning as L
import torch
import torch.nn.functional as F
from digits import BATCH, EPOCHS, network, test_set, train_set
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader


class Digits(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = network()

    def training_step(self, batch, batch_idx):
        return F.cross_entropy(self.net(batch[0]), batch[1])

    def validation_step(self, batch, batch_idx):
        self.log("accuracy", (self.net(batch[0]).argmax(1) == batch[1]).float().mean(), prog_bar=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


L.seed_everything(0)
model = Digits()
train = DataLoader(train_set, batch_size=BATCH, shuffle=True)
test = DataLoader(test_set, batch_size=512)
checkpoints = ModelCheckpoint(sys.argv[1], save_last=True)
trainer = L.Trainer(max_epochs=EPOCHS, callbacks=[checkpoints], default_root_dir=sys.argv[1])
trainer.fit(model, train, test, ckpt_path="last")
