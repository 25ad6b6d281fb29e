# SPDX-License-Identifier: Apache-2.0
"""A training with a ConcatScheduler that is saved after its third epoch, and another that goes on from there."""

import torch
from ignite.engine import Events, create_supervised_trainer
from ignite.handlers import ConcatScheduler, CosineAnnealingScheduler, LinearCyclicalScheduler
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
inputs = torch.randn(320, 8)
labels = inputs[:, :3].argmax(1)
loader = DataLoader(TensorDataset(inputs, labels), batch_size=16, shuffle=True)


def parts():
    net = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 3))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    first = LinearCyclicalScheduler(optimizer, "lr", start_value=0.1, end_value=0.3, cycle_size=60)
    second = CosineAnnealingScheduler(optimizer, "lr", start_value=0.3, end_value=0.0, cycle_size=100)
    schedule = ConcatScheduler([first, second], durations=[80])
    trainer = create_supervised_trainer(net, optimizer, nn.CrossEntropyLoss())
    trainer.add_event_handler(Events.ITERATION_STARTED, schedule)

    @trainer.on(Events.EPOCH_COMPLETED)
    def show(engine):
        print(
            f"epoch {engine.state.epoch} loss {engine.state.output:.4f} rate {optimizer.param_groups[0]['lr']:.4f}"
        )

    return {"net": net, "optimizer": optimizer, "schedule": schedule, "trainer": trainer}


kept = parts()
kept["trainer"].run(loader, max_epochs=3)
torch.save({name: part.state_dict() for name, part in kept.items()}, "checkpoint.pt")
again = parts()
for name, state in torch.load("checkpoint.pt", weights_only=False).items():
    again[name].load_state_dict(state)
again["trainer"].run(loader, max_epochs=6)
