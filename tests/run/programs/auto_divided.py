# SPDX-License-Identifier: Apache-2.0
"""micro_batch="auto" of one update with divided weights, and numbers, which work: `python auto_divided.py FOLDER`."""

import json
import os
import sys
import time
from pathlib import Path

import torch
from refused import RANK, refused

import truestep as ts

X = torch.ones(4, 2)


def learner(run, name="net", **options):
    return run.learner(torch.nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.1), name=name, **options)


def value(net):
    return lambda rows: net(rows).squeeze(1).square()


def of_the_learner(run):
    learner(run, micro_batch="auto")


def at_once(run):
    net = learner(run)
    net.update(value(net), X, micro_batch="auto")


def later(run):
    net = learner(run, micro_batch=2)
    for step in run.steps(3):
        net.update(value(net), X, micro_batch="auto" if step == 2 else None)


def of_two(run):
    first, second = learner(run, "first"), learner(run, "second")
    ts.update([first, second], lambda rows: value(first)(rows) + value(second)(rows), X, micro_batch="auto")


def beside_a_split(run):
    net = learner(run)
    net.update(value(net), X, micro_batch="auto", split=0)


def without_rows(run):
    net = learner(run)
    net.update(value(net), X[: 4 * RANK], micro_batch="auto")


def of_loop(run):
    net = learner(run)
    source = run.data(X, batch_size=4)
    for _ in run.epochs(1):
        for batch in run.batches(source):
            net.update(value(net), batch, micro_batch="auto")


def numbers(run):
    net = learner(run)
    for size in (None, 1, 3):
        net.update(value(net), X, micro_batch=size)


CASES = [of_the_learner, at_once, later, of_two, beside_a_split, without_rows, of_loop, numbers]

if __name__ == "__main__":
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    found = {case.__name__: refused(case, folder, strategy="fsdp") for case in CASES}
    (folder / f"{RANK}.json").write_text(json.dumps(found, indent=1))
    while RANK == 0 and not (folder / "1.json").exists():
        time.sleep(0.05)  # the store is rank 0's, and rank 1 has yet to say why it stops
    os._exit(0)
