# SPDX-License-Identifier: Apache-2.0
"""A loss that takes rows of the whole data, and none of its batch, is warned of; one that has other reasons is not."""
# ruff: noqa: RUF059 - what a loss leaves unread is what is tried

import warnings
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import truestep as ts

X, Y = torch.randn(32, 3), torch.zeros(32, dtype=torch.long)
CODES = torch.randn(64, 3)
NET = nn.Linear(3, 2)
WORDS = "reads nothing of its batch of shape"


def every(outputs, y):
    return F.cross_entropy(outputs, y, reduction="none")


def of_a_table(batch):
    return every(NET(X[:8]), Y[:8])


def taken_apart(batch):
    x, y = batch
    return every(NET(X[:8]), Y[:8])


def inputs_alone(batch):
    x, y = batch
    return every(NET(X[:8]), y)


def helped():
    return every(NET(X[8:16]), Y[8:16])


class Task:
    def __init__(self):
        self.x, self.y = X, Y

    def loss(self, batch):
        return every(NET(self.x[:8]), self.y[:8])


def with_data(net, batch):
    inputs, labels = batch
    return every(net(X[:8]), Y[:8])


FAULTS = {
    "a function": of_a_table,
    "a tuple taken apart": taken_apart,
    "inputs alone": inputs_alone,
    "a lambda": lambda batch: helped(),
    "a method": Task().loss,
    "a partial": partial(with_data, NET),
}


def reads(batch):
    x, y = batch
    return every(NET(x), y)


def unlabelled(batch):
    x, y = batch
    return F.mse_loss(NET(x) @ NET.weight, x, reduction="none").mean(1)


def by_number(batch):
    return every(NET(batch[0]), batch[1])


def of_noise(batch):
    return NET(torch.randn(8, 3)).square().mean(1)


def with_codes(batch):
    x, y = batch
    return torch.cdist(NET(x) @ NET.weight, CODES).min(1).values


def by_its_length(batch):
    return every(NET(X[: len(batch[0])]), Y[: len(batch[0])])


def inner(batch):
    x, y = batch
    return torch.func.vmap(lambda one: NET(one).sum())(x)


RIGHT = {
    each.__name__: each for each in (reads, unlabelled, by_number, of_noise, with_codes, by_its_length, inner)
}


def train(folder, loss):
    run = ts.Run(folder, device="cpu", progress=False, doctor=False)
    net = run.learner(NET, lambda p: torch.optim.SGD(p, lr=0.1))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for batch in run.batches(run.data((X, Y), batch_size=8)):
            net.update(loss or (lambda _, x=batch[0], y=batch[1]: every(NET(x), y)), batch)
    run.close()
    return [str(each.message) for each in said if WORDS in str(each.message)]


@pytest.mark.parametrize("kind", FAULTS)
def test_a_batch_that_goes_unused_is_warned_of_once(tmp_path, kind):
    assert len(train(tmp_path, FAULTS[kind])) == 1


@pytest.mark.parametrize("kind", [*RIGHT, "what the loop took apart"])
def test_nothing_is_said_of_other_losses(tmp_path, kind):
    assert train(tmp_path, RIGHT.get(kind)) == []
