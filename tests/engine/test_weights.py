# SPDX-License-Identifier: Apache-2.0
"""Weights say how much a value counts: refused where they can't, averaged with where they can, logged by examples."""

import json

import pytest
import torch
from torch import nn

import truestep as ts
from truestep.engine.loss_results import LossOutput
from truestep.engine.loss_sums import LossTotals

X = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))


def test_weights_that_need_a_gradient_are_refused(make_learner):
    net = make_learner(nn.Linear(3, 2))
    with pytest.raises(ts.LossError, match=r"ts\.weighted\(values \* weights\)"):
        net.update(lambda x: ts.weighted(net(x)[:, 0], net(x)[:, 1].sigmoid()), X)
    with pytest.raises(ts.LossError, match="need a gradient"):
        ts.weighted(torch.ones(2, requires_grad=True), nn.Parameter(torch.ones(2)))
    with pytest.raises(ts.LossError, match=r"in each other's place.*ts\.weighted\(losses, weights\)"):
        ts.weighted(torch.ones(2), nn.Parameter(torch.ones(2)))
    net.update(lambda x: ts.weighted(net(x)[:, 0], net(x)[:, 1].sigmoid().detach()), X)


@pytest.mark.parametrize("micro_batch", [None, 2])
def test_negative_weights_are_refused_and_nothing_has_moved(make_learner, snapshot, same, micro_batch):
    net = make_learner(nn.Linear(3, 1))
    weights = torch.tensor([1.0, 2.0, 0.0, 1.0, 1.0, -0.5])
    before = snapshot(net)
    batch = (X, weights)
    loss = lambda b: ts.weighted(net(b[0]).squeeze(1), b[1])
    with pytest.raises(ts.LossError, match=r"negative weights.*a sign belongs to the value"):
        net.update(loss, batch, micro_batch=micro_batch)
    with pytest.raises(ts.LossError, match="negative weights"), net.accumulating() as update:
        update.backward(loss(batch))
    assert same(before, snapshot(net))


def test_negative_weights_are_refused_in_an_evaluation(make_learner):
    net = make_learner(nn.Linear(3, 1))
    values = lambda batch: ts.weighted(net(batch[0]).squeeze(1), batch[1])
    with pytest.raises(ts.LossError, match="negative weights"):
        net.evaluate(values, [(X, torch.ones(6)), (X, -torch.ones(6))])


def test_on_a_device_negative_weights_are_noted_without_waiting():
    """The meta device stands for one that can't be read."""
    weights = torch.ones(3, device="meta")
    sums = LossTotals()
    for _ in range(2):
        sums.add(LossOutput(torch.ones(3, device="meta"), weights, {}, is_scalar=False))
    assert sums.least is not None
    assert sums.least.device.type == "meta"


@pytest.mark.parametrize("starts_at", [0, 5])
def test_accumulating_returns_the_weighted_mean(make_learner, starts_at):
    net = make_learner(nn.Linear(3, 1), starts_at=starts_at)
    weights = torch.tensor([1.0, 0.0, 0.0, 3.0, 0.0, 0.0])
    with net.accumulating() as update:
        losses = net(X).squeeze(1)
        mean = update.backward(ts.weighted(losses, weights))
        assert float(update.backward(ts.weighted(net(X).squeeze(1), torch.zeros(6)))) == 0
        plain = update.backward(net(X).squeeze(1))
    torch.testing.assert_close(mean, (losses.detach() * weights).sum() / 4)
    torch.testing.assert_close(plain, losses.detach().mean())


def test_the_log_weighs_scalar_losses_by_their_examples(tmp_path):
    """A full batch and a short one with an outlier: the mean over the examples, whatever the loss returns."""
    data = torch.cat([torch.zeros(64, 1), torch.full((2, 1), 10.0)])

    def logged(name, reduce):
        with ts.Run(tmp_path / name, progress=False) as run:
            net = run.learner(nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=0.0))
            nn.init.ones_(net.module.weight)
            nn.init.zeros_(net.module.bias)
            train = run.data((data,), batch_size=64)
            for _ in run.epochs(1):
                for batch in run.batches(train):
                    update = net.update(lambda b: reduce(net(b[0]).square().squeeze(1)), batch)
                run.log()
        assert (update.num_examples, float(update.weight)) == (2, 2)
        return json.loads((tmp_path / name / "metrics.jsonl").read_text().splitlines()[0])["values"]["loss"]

    vector = logged("vector", lambda losses: losses)
    assert logged("scalar", torch.mean) == vector == pytest.approx(200 / 66)
