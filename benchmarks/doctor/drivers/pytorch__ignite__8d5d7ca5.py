# SPDX-License-Identifier: Apache-2.0
"""create_supervised_trainer with four steps of accumulation, the loss shown by RunningAverage and printed each epoch."""

import torch
from ignite.engine import Events, create_supervised_trainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
inputs = torch.randn(640, 8)
labels = inputs[:, :3].argmax(1)
loader = DataLoader(TensorDataset(inputs, labels), batch_size=16, shuffle=True)
net = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 3))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
trainer = create_supervised_trainer(net, optimizer, nn.CrossEntropyLoss(), gradient_accumulation_steps=4)


@trainer.on(Events.ITERATION_COMPLETED(every=10))
def show(engine):
    print(f"epoch {engine.state.epoch} iteration {engine.state.iteration} loss {engine.state.output:.4f}")


trainer.run(loader, max_epochs=3)
