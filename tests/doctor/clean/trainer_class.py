# SPDX-License-Identifier: Apache-2.0
import copy
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


@dataclass
class Config:
    epochs: int = 6
    rate: float = 1e-2
    patience: int = 2
    accumulate: int = 2


class Net(nn.Module):
    def __init__(self, inputs, classes, dropout=0.2):
        super().__init__()
        self.fc1 = nn.Linear(inputs, 32)
        self.bn1 = nn.BatchNorm1d(32)
        self.act = nn.ReLU()
        self.drop = nn.Dropout(dropout)
        self.fc2 = nn.Linear(32, classes)

    def forward(self, x):
        return self.fc2(self.drop(self.act(self.bn1(self.fc1(x)))))


class Trainer:
    def __init__(self, model, config):
        self.model, self.config = model, config
        self.criterion = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=config.rate)
        self.schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(self.optimizer, mode="max", patience=1)
        self.best, self.best_state, self.waited = 0.0, None, 0

    def train_one_epoch(self, loader):
        self.model.train()
        total = 0.0
        self.optimizer.zero_grad()
        for index, (x, y) in enumerate(loader):
            loss = self.criterion(self.model(x), y)
            (loss / self.config.accumulate).backward()
            total += loss.item()
            if (index + 1) % self.config.accumulate == 0 or index + 1 == len(loader):
                nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimizer.step()
                self.optimizer.zero_grad()
        return total / len(loader)

    def validate(self, loader):
        self.model.eval()
        right = count = 0
        with torch.no_grad():
            for x, y in loader:
                right += (self.model(x).argmax(dim=1) == y).sum().item()
                count += y.size(0)
        return right / count

    def fit(self, train_loader, val_loader):
        for _epoch in range(self.config.epochs):
            self.train_one_epoch(train_loader)
            score = self.validate(val_loader)
            self.schedule.step(score)
            if score > self.best or self.best_state is None:
                self.best, self.waited = score, 0
                self.best_state = copy.deepcopy(self.model.state_dict())
            else:
                self.waited += 1
                if self.waited > self.config.patience:
                    break
        self.model.load_state_dict(self.best_state)

    @torch.no_grad()
    def predict(self, x):
        self.model.eval()
        return self.model(x).softmax(dim=1)


def main():
    torch.manual_seed(0)
    x, y = torch.randn(200, 6), torch.randint(3, (200,))
    train_loader = DataLoader(TensorDataset(x[:120], y[:120]), batch_size=20, shuffle=True)
    val_loader = DataLoader(TensorDataset(x[140:], y[140:]), batch_size=20)
    scores = []
    for fold in range(2):
        torch.manual_seed(fold)
        trainer = Trainer(Net(6, 3), Config())
        trainer.fit(train_loader, val_loader)
        scores.append(trainer.predict(x[140:]))
    print(torch.stack(scores).mean(0).argmax(1).eq(y[140:]).float().mean().item())


if __name__ == "__main__":
    main()
