# SPDX-License-Identifier: Apache-2.0
# clean
import torch
from torch import nn
from torch.utils.data import TensorDataset, DataLoader


class Trainer:
    """keras like"""

    def __init__(self, model, optimizer, loss_fn, metrics=None, device="cpu"):
        self.model = model
        self.optimizer = optimizer
        self.loss_fn = loss_fn
        self.history = {"loss": [], "val_loss": []}

    def _step(self, xb, yb):
        pred = self.model(xb)
        loss = self.loss_fn(pred, yb)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
        self.optimizer.step()
        return loss.item()

    def fit(self, train_dl, val_dl, epochs):
        for ep in range(epochs):
            self.model.train()
            tot = 0.0
            for xb, yb in train_dl:
                tot += self._step(xb, yb)
            self.history["loss"].append(tot / len(train_dl))
            self.history["val_loss"].append(self.validate(val_dl))

    @torch.no_grad()
    def validate(self, dl):
        self.model.eval()
        return sum(self.loss_fn(self.model(x), y).item() for x, y in dl) / len(dl)


torch.manual_seed(3)
X = torch.randn(600, 10)
y = (X.sum(1) > 0).long()
tr = DataLoader(TensorDataset(X[:500], y[:500]), batch_size=10, shuffle=True)
va = DataLoader(TensorDataset(X[500:], y[500:]), batch_size=50)
net = nn.Sequential(nn.Linear(10, 20), nn.Tanh(), nn.Linear(20, 2))
Trainer(net, torch.optim.AdamW(net.parameters(), 1e-3), nn.CrossEntropyLoss()).fit(tr, va, 4)
