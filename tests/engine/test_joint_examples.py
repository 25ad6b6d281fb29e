# SPDX-License-Identifier: Apache-2.0
"""A split loss in which an example's value depends on the others is warned of once; one of each example alone is not."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import truestep as ts

WORDS = "examples other values by themselves"
X, A = torch.randn(16, 3, generator=torch.Generator().manual_seed(0)), torch.arange(16.0)


def normalised(net, batch):
    x, a = batch
    return -net(x)[:, 0] * (a - a.mean()) / (a.std() + 1e-8)


def relative_to_the_mean(net, batch):
    score = net(batch[0])[:, 0]
    return F.softplus(score - net(-batch[0])[:, 0].mean())


def divided_by_the_sum(net, batch):
    x, a = batch
    return net(x)[:, 0] * a / a.sum()


def with_negatives_of_the_batch(net, batch):
    out = net(batch[0])
    return F.cross_entropy(out @ out.T, torch.arange(len(out)), reduction="none")


class Ranked:
    def __call__(self, net, batch):
        x, a = batch
        return net(x)[:, 0] * a.argsort().argsort()[: len(a)] / len(a)


def of_each(net, batch):
    x, a = batch
    return F.smooth_l1_loss(net(x)[:, 0], a, reduction="none")


def of_softmax(net, batch):
    return F.cross_entropy(net(batch[0]), (batch[1] > 7).long(), reduction="none")


def dropped(net, batch):
    return F.dropout(net(batch[0]), 0.5).sum(1)


def of_noise(net, batch):
    return (net(batch[0])[:, 0] - ts.randn(len(batch[0]))).square()


def weighted(net, batch):
    return ts.weighted(net(batch[0])[:, 0].square(), batch[1])


def train(folder, loss, **options):
    run = ts.Run(folder, seed=0, device="cpu", progress=False, doctor=False)
    net = run.learner(nn.Linear(3, 2), lambda p: torch.optim.SGD(p, lr=0.01), micro_batch=8, name="net")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for batch in run.batches(run.data((X, A), batch_size=16, shuffle=True)):
            for _ in range(2):
                net.update(lambda part: loss(net, part), batch, **options)
    run.close()
    return [each for each in said if WORDS in str(each.message)], net.module.weight.detach().clone()


FAULTS = [normalised, relative_to_the_mean, divided_by_the_sum, with_negatives_of_the_batch, Ranked()]


@pytest.mark.parametrize("loss", FAULTS, ids=lambda f: getattr(f, "__name__", "an object"))
def test_a_loss_of_examples_together_is_warned_of_once(tmp_path, loss):
    said, _ = train(tmp_path / "split", loss)
    assert len(said) == 1
    assert train(tmp_path / "whole", loss, decomposable=False)[0] == []


@pytest.mark.parametrize("loss", [of_each, of_softmax, dropped, of_noise, weighted], ids=lambda f: f.__name__)
def test_nothing_is_said_of_a_loss_of_each_example(tmp_path, loss):
    assert train(tmp_path, loss)[0] == []


@pytest.mark.parametrize("loss", [of_each, dropped, of_noise], ids=lambda f: f.__name__)
def test_to_ask_changes_nothing(tmp_path, monkeypatch, loss):
    _, asked = train(tmp_path / "asked", loss)
    monkeypatch.setattr("truestep.engine.update.tell_of_joint_examples", lambda *_: None)
    assert torch.equal(asked, train(tmp_path / "not", loss)[1])
