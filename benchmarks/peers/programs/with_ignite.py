# SPDX-License-Identifier: Apache-2.0
"""The program as Ignite's quick start has it, with `deterministic=True` and checkpoints: `python with_ignite.py FOLDER`."""

import sys
from pathlib import Path

import torch
from digits import BATCH, EPOCHS, network, test_set, train_set
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.handlers import Checkpoint, DiskSaver
from ignite.metrics import Accuracy
from ignite.utils import manual_seed
from torch import nn
from torch.utils.data import DataLoader

manual_seed(0)
net = network()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
train = DataLoader(train_set, batch_size=BATCH, shuffle=True)
test = DataLoader(test_set, batch_size=512)
trainer = create_supervised_trainer(net, optimizer, nn.CrossEntropyLoss(), deterministic=True)
evaluator = create_supervised_evaluator(net, metrics={"accuracy": Accuracy()})


@trainer.on(Events.EPOCH_COMPLETED)
def evaluate():
    evaluator.run(test)
    print(f"accuracy {evaluator.state.metrics['accuracy']:.3f}")


state = {"net": net, "optimizer": optimizer, "trainer": trainer}
saver = Checkpoint(state, DiskSaver(sys.argv[1], require_empty=False), n_saved=1)
trainer.add_event_handler(Events.EPOCH_COMPLETED, saver)
if saved := list(Path(sys.argv[1]).glob("*.pt")):
    Checkpoint.load_objects(state, torch.load(saved[0], weights_only=False))
trainer.run(train, max_epochs=EPOCHS)
