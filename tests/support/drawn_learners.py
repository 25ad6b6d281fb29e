# SPDX-License-Identifier: Apache-2.0
"""Drawn trainings of one to three learners: who is updated in a step, in which order and way, and behind the loop over a pass."""

import os
import random
import signal
from typing import NamedTuple

import torch
from torch import nn
from torch.nn.functional import mse_loss

import truestep as ts

EPOCHS = 2
WAYS = ("whole", "in parts", "block", "joint")


class Op(NamedTuple):
    """An update: in which way, and whose."""

    way: str
    whose: str


class Plan(NamedTuple):
    """What one training does."""

    learners: str
    body: list[Op]
    behind: list[Op]
    in_turn: bool
    """Whether the body gets the batches of two sources in turn: twice in one step."""
    every_steps: int
    saves: bool
    """Whether the run is saved behind the loop, before what is updated there."""


def drawn(number):
    """Return the plan of this number."""
    chance = random.Random(f"learners {number}")
    learners = "abc"[: chance.choice((1, 2, 2, 3, 3))]

    def op(name):
        others = learners.replace(name, "")
        way = chance.choice(WAYS if others else WAYS[:3])
        return Op(way, name + chance.choice(others) if way == "joint" else name)

    body = [op(name) for name in learners for _ in range(chance.choice((1, 2)))]
    chance.shuffle(body)
    behind = [op(chance.choice(learners)) for _ in range(chance.choice((0, 1, 2)))]
    return Plan(learners, body, behind, chance.random() < 0.5, chance.choice((1, 2)), chance.random() < 0.5)


def without_others(plan, name, *, made=True):
    """Return the plan in which those alone are updated that share updates with this one; `made`: the others are made still.

    Whoever is made first decides who has the run's seed, and stays.
    """
    together = {name}
    for _ in plan.learners:
        for op in plan.body + plan.behind:
            together |= set(op.whose) if together & set(op.whose) else set()
    body, behind = ([op for op in ops if together & set(op.whose)] for ops in (plan.body, plan.behind))
    learners = plan.learners if made else "".join(sorted(together | {"a"}))
    return plan._replace(learners=learners, body=body, behind=behind)


def for_ranks(number):
    """Return the plan of this number without what is other on several ranks, as their page says.

    A loop's batches alone are shared among them, and which rows of one a block has is known in a loop over one source.
    """
    plan = drawn(number)._replace(behind=[])
    if not plan.in_turn:
        return plan
    return plan._replace(body=[Op("whole" if op.way == "block" else op.way, op.whose) for op in plan.body])


def train(directory, plan, *, kill_at=None, dropout=0.3, dtype=torch.float32):
    """Train as planned, and return the weights by learner; with `kill_at` the process dies before its update of this number."""
    torch.set_num_threads(1)
    saving = ts.Saving(every_steps=plan.every_steps, every_seconds=None, keep_last=2, background=False)
    run = ts.Run(directory, seed=3, device="cpu", saving=saving, progress=False, quiet=True, doctor=False)
    nets = {name: _learner(run, name, dropout, dtype) for name in plan.learners}
    rows = torch.randn(2, 12, 3, dtype=dtype, generator=torch.Generator().manual_seed(1))
    first, second = (run.data(each, batch_size=4, shuffle=True) for each in rows)
    done = 0

    def update(ops, batch):
        nonlocal done
        for op in ops:
            if done == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            done += 1
            _update([nets[name] for name in op.whose], op.way, batch)

    for _ in run.epochs(EPOCHS):
        if plan.in_turn:
            for batches in zip(run.batches(first), run.batches(second), strict=True):
                for batch in batches:
                    update(plan.body, batch)
        else:
            for batch in run.batches(first):
                update(plan.body, batch)
        if plan.saves:
            run.save()
        update(plan.behind, rows[0, :4])
    return {name: {key: each.clone() for key, each in net.state_dict().items()} for name, net in nets.items()}


def train_alone(directory, plan, times):
    """Make the body's updates so often without any loop of the run's, and return the weights by learner and name."""
    run = ts.Run(directory, seed=3, device="cpu", progress=False, quiet=True, doctor=False)
    nets = {name: _learner(run, name, 0.3, torch.float32) for name in plan.learners}
    for _ in range(times):
        for op in plan.body:
            _update([nets[name] for name in op.whose], op.way, torch.ones(4, 3))
    run.save()
    run.close()
    return {f"{name}.{key}": each for name, net in nets.items() for key, each in net.state_dict().items()}


def _learner(run, name, dropout, dtype):
    torch.manual_seed(ord(name))
    module = nn.Sequential(nn.Linear(3, 4), nn.Dropout(dropout), nn.Linear(4, 1)).to(dtype)
    precision = "float64" if dtype == torch.float64 else "float32"
    return run.learner(module, lambda p: torch.optim.SGD(p, lr=0.05), name=name, precision=precision)


def _update(nets, way, batch):
    def loss(rows):
        noise = 0.1 * ts.randn(len(rows), 1, dtype=rows.dtype)
        made = sum(net(rows) for net in nets) + noise
        return mse_loss(made, rows.sum(1, keepdim=True), reduction="none").mean(1)

    if way == "joint":
        ts.update(nets, loss, batch)
    elif way == "block":
        with nets[0].accumulating() as update:
            update.backward(loss(batch))
    else:
        nets[0].update(loss, batch, micro_batch=3 if way == "in parts" else None)
