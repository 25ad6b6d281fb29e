# SPDX-License-Identifier: Apache-2.0
import torch
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.metrics import Accuracy
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.1), nn.ReLU(), nn.Linear(16, 3))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
train = DataLoader(TensorDataset(torch.randn(128, 4), torch.arange(128) % 3), batch_size=8, shuffle=True)
test = DataLoader(TensorDataset(torch.randn(64, 4), torch.arange(64) % 3), batch_size=16)
trainer = create_supervised_trainer(net, optimizer, nn.CrossEntropyLoss(), gradient_accumulation_steps=2)
evaluator = create_supervised_evaluator(net, metrics={"accuracy": Accuracy()})


@trainer.on(Events.EPOCH_COMPLETED)
def at_the_end_of_an_epoch(_engine):
    schedule.step()
    evaluator.run(test)


trainer.run(train, max_epochs=3)
