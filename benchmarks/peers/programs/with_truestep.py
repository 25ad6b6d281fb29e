# SPDX-License-Identifier: Apache-2.0
"""The program as Truestep's README has it: `python with_truestep.py FOLDER`; started again, it goes on."""

import sys

import torch
import torch.nn.functional as F
from digits import BATCH, EPOCHS, network, test_set, train_set

import truestep as ts

run = ts.Run(sys.argv[1], seed=0)
net = run.learner(network(), lambda parameters: torch.optim.AdamW(parameters, lr=1e-2))
train = run.data(train_set, batch_size=BATCH, shuffle=True)
test = run.data(test_set, batch_size=512)


def loss(batch):
    return F.cross_entropy(net(batch[0]), batch[1], reduction="none")


def correct(batch):
    return net(batch[0]).argmax(1) == batch[1]


for _ in run.epochs(EPOCHS):
    for batch in run.batches(train):
        net.update(loss, batch)
    run.log(accuracy=net.evaluate(correct, test))
