# SPDX-License-Identifier: Apache-2.0
"""Evaluations by divided weights, of a stream that every rank reads and of rows that have numbers.

`python evaluates_stream.py FOLDER [SHORTER]` prints what they give and how many messages each begins, of 9 and of 12 batches, of
which the last leaves one rank without a row. With SHORTER rank 1 reads so many samples less.
"""

import json
import sys

import torch
from torch import nn

import truestep as ts

BATCH_SIZE = 4
less = int(sys.argv[2]) if len(sys.argv) > 2 else 0
run = ts.Run(sys.argv[1], seed=0, device="cpu", progress=False, quiet=True, doctor=False, strategy="fsdp")
net = run.learner(nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.1))
rows = torch.arange(90.0).view(45, 2)


def evaluated(data):
    before = run.context.world.num_begun
    found = net.evaluate(lambda batch: net(batch)[:, 0], data)
    return found, run.context.world.num_begun - before


def stream(number):
    return lambda: iter(rows[: number - less * run.rank])


evaluated(run.data(rows[:BATCH_SIZE], batch_size=BATCH_SIZE))  # the first has more to say
found = []
for batches in (9, 12):
    number = BATCH_SIZE * (batches - 1) + 1
    found.append([evaluated(run.data(of, batch_size=BATCH_SIZE)) for of in (rows[:number], stream(number))])
print(json.dumps(found))
run.close()
