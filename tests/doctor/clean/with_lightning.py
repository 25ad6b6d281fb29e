# SPDX-License-Identifier: Apache-2.0
import lightning
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.1), nn.ReLU(), nn.Linear(16, 3))

    def training_step(self, batch, _index):
        x, y = batch
        return F.cross_entropy(self.net(x), y)

    def validation_step(self, batch, _index):
        x, y = batch
        self.log("loss", F.cross_entropy(self.net(x), y))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]


lightning.seed_everything(0)
data = TensorDataset(torch.randn(128, 4), torch.arange(128) % 3)
held_out = TensorDataset(torch.randn(64, 4), torch.arange(64) % 3)
train, test = DataLoader(data, batch_size=8, shuffle=True), DataLoader(held_out, batch_size=16)
trainer = lightning.Trainer(
    max_epochs=3, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False
)
trainer.fit(Classifier(), train, test)
