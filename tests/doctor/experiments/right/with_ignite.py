# SPDX-License-Identifier: Apache-2.0
"""A classifier in Ignite's engines: a trainer with a step of its own, and an evaluator with two metrics."""

import torch
import torch.nn as nn
from ignite.engine import Engine, Events, create_supervised_evaluator
from ignite.metrics import Accuracy, Loss
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
inputs = torch.randn(200, 6)
targets = inputs[:, :3].argmax(1)
train_loader = DataLoader(TensorDataset(inputs[:150], targets[:150]), batch_size=15, shuffle=True)
val_loader = DataLoader(TensorDataset(inputs[150:], targets[150:]), batch_size=25)
model = nn.Sequential(nn.Linear(6, 24), nn.GELU(), nn.Dropout(0.1), nn.Linear(24, 3))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
criterion = nn.CrossEntropyLoss(label_smoothing=0.05)


def train_step(engine, batch):
    model.train()
    optimizer.zero_grad()
    x, y = batch
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.item()


trainer = Engine(train_step)
evaluator = create_supervised_evaluator(model, metrics={"accuracy": Accuracy(), "loss": Loss(criterion)})


@trainer.on(Events.EPOCH_COMPLETED)
def log_validation(engine):
    evaluator.run(val_loader)
    metrics = evaluator.state.metrics
    print(f"Epoch {engine.state.epoch} accuracy {metrics['accuracy']:.4f} loss {metrics['loss']:.4f}")


trainer.run(train_loader, max_epochs=3)
