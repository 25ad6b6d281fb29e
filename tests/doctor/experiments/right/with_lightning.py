# SPDX-License-Identifier: Apache-2.0
"""Lightning: a module with accumulated gradients, logged losses and a metric over the validation set."""

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import MulticlassAccuracy


class Classifier(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 24), nn.GELU(), nn.Dropout(0.1), nn.Linear(24, 3))
        self.accuracy = MulticlassAccuracy(3, average="micro")

    def training_step(self, batch, _):
        x, y = batch
        loss = F.cross_entropy(self.net(x), y, label_smoothing=0.1)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, _):
        x, y = batch
        logits = self.net(x)
        self.accuracy(logits, y)
        self.log("val_loss", F.cross_entropy(logits, y))
        self.log("val_accuracy", self.accuracy)

    def on_validation_epoch_end(self):
        print(f"accuracy {self.accuracy.compute().item():.4f}")

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=3e-3)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, 3e-3, self.trainer.estimated_stepping_batches
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


L.seed_everything(0, verbose=False)
x = torch.randn(480, 6)
y = x[:, :3].argmax(1)
train = DataLoader(TensorDataset(x[:400], y[:400]), batch_size=20, shuffle=True)
held = DataLoader(TensorDataset(x[400:], y[400:]), batch_size=30)
trainer = L.Trainer(
    max_epochs=3,
    accumulate_grad_batches=2,
    gradient_clip_val=1.0,
    logger=False,
    enable_checkpointing=False,
    enable_model_summary=False,
    accelerator="cpu",
    num_sanity_val_steps=0,
)
trainer.fit(Classifier(), train, held)
