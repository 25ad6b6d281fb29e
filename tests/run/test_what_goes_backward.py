# SPDX-License-Identifier: Apache-2.0
"""Checks that look at what goes backward see it in a run's updates, too; the right forms are silent."""

import json

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import truestep as ts

pytestmark = pytest.mark.usefixtures("nothing_was_compiled")

GAMMA = 0.9


def errors(net, x):
    return (net(x)[:, 0] - x.sum(1)).pow(2)


def labels(x):
    return (x.sum(1) > 0).long()


def slope(net, x, create_graph):
    x = x.clone().requires_grad_()
    return torch.autograd.grad(net(x).sum(), x, create_graph=create_graph)[0].pow(2).sum(1)


def next_value(net, x):
    return net(x + 1).max(1).values


def weighted(values):
    return ts.weighted(values, torch.ones_like(values))


# the check; a faulty loss; its right form
FORMS = {
    "a penalty of rows without its graph": (
        "GRAD063",
        lambda net, x: errors(net, x) + 0.1 * slope(net, x, create_graph=False),
        lambda net, x: errors(net, x) + 0.1 * slope(net, x, create_graph=True),
    ),
    "a penalty of one number without its graph": (
        "GRAD063",
        lambda net, x: errors(net, x) + 0.1 * slope(net, x, create_graph=False).mean(),
        lambda net, x: errors(net, x) + 0.1 * slope(net, x, create_graph=True).mean(),
    ),
    "a detached term, weighted": (
        "GRAD063",
        lambda net, x: weighted(errors(net, x) + 0.01 * net(x).abs().mean(1).detach()),
        lambda net, x: weighted(errors(net, x) + 0.01 * net(x).abs().mean(1)),
    ),
    "a target that moves, squared by hand": (
        "GRAD067",
        lambda net, x: (net(x)[:, 0] - (x[:, 0] + GAMMA * next_value(net, x))) ** 2,
        lambda net, x: (net(x)[:, 0] - (x[:, 0] + GAMMA * next_value(net, x).detach())) ** 2,
    ),
    "a target that moves, in one of torch's losses": (
        "GRAD067",
        lambda net, x: F.mse_loss(net(x)[:, 0], x[:, 0] + GAMMA * next_value(net, x), reduction="none"),
        lambda net, x: F.mse_loss(
            net(x)[:, 0], x[:, 0] + GAMMA * next_value(net, x).detach(), reduction="none"
        ),
    ),
    "a difference of all with all": (
        "LOSS017",
        lambda net, x: (net(x)[:, :1] - x.sum(1)).pow(2).mean(1),
        lambda net, x: (net(x)[:, :1] - x.sum(1, keepdim=True)).pow(2).mean(1),
    ),
    "a difference of all with all beside a term": (
        "LOSS017",
        lambda net, x: 0.5 * ((net(x)[:, :1] - x.sum(1)) ** 2).mean(1) + net(x).abs().mean(1),
        lambda net, x: 0.5 * ((net(x)[:, :1] - x.sum(1, keepdim=True)) ** 2).mean(1) + net(x).abs().mean(1),
    ),
    "a cross entropy with a minus": (
        "LOSS050",
        lambda net, x: -F.cross_entropy(net(x), labels(x), reduction="none"),
        lambda net, x: F.cross_entropy(net(x), labels(x), reduction="none"),
    ),
    "a squared difference with a minus, beside a term": (
        "LOSS050",
        lambda net, x: -0.5 * errors(net, x) + 0.01 * net(x).logsumexp(1),
        lambda net, x: 0.5 * errors(net, x) + 0.01 * net(x).logsumexp(1),
    ),
    "a log-probability without its minus": (
        "LOSS050",
        lambda net, x: F.log_softmax(net(x), 1).gather(1, labels(x)[:, None]).squeeze(1),
        lambda net, x: -F.log_softmax(net(x), 1).gather(1, labels(x)[:, None]).squeeze(1),
    ),
    "a mean of the whole batch": (
        "LOSS050",
        lambda net, x: -F.cross_entropy(net(x), labels(x)),
        lambda net, x: F.cross_entropy(net(x), labels(x)),
    ),
}
ONE_OF_EACH = [
    "a penalty of one number without its graph",
    "a target that moves, squared by hand",
    "a difference of all with all beside a term",
    "a squared difference with a minus, beside a term",
]


def codes(folder, loss, *, size=16, steps=8, by=None, **options):
    torch.manual_seed(0)
    run = ts.Run(folder, seed=0, progress=False)
    module = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    net = run.learner(module, lambda p: torch.optim.SGD(p, lr=1e-3), **options)
    data = run.data(torch.randn(steps * 16 - 3, 4), batch_size=size, shuffle=True)
    for _ in run.epochs(1):
        for batch in run.batches(data):
            (by or net.update)(*((net, loss, batch) if by else (lambda x: loss(net, x), batch)))
    kept = folder / "doctor.json"
    return {each["code"] for each in json.loads(kept.read_text())["findings"]} if kept.exists() else set()


@pytest.mark.sliced(3)
@pytest.mark.parametrize("form", FORMS)
def test_a_faulty_loss_is_named_in_a_run_and_its_right_form_is_not(tmp_path, form):
    code, faulty, right = FORMS[form]
    assert code in codes(tmp_path / "faulty", faulty)
    assert not codes(tmp_path / "right", right)


@pytest.mark.parametrize("form", ONE_OF_EACH)
def test_so_in_micro_batches(tmp_path, form):
    code, faulty, right = FORMS[form]
    assert code in codes(tmp_path / "faulty", faulty, micro_batch=8)
    assert not codes(tmp_path / "right", right, micro_batch=8)


def in_a_block(net, loss, batch):
    with net.accumulating() as update:
        for part in batch.chunk(2):
            update.backward(loss(net, part))


@pytest.mark.parametrize("form", ONE_OF_EACH)
def test_so_in_an_accumulating_block(tmp_path, form):
    code, faulty, right = FORMS[form]
    assert code in codes(tmp_path / "faulty", faulty, by=in_a_block)
    assert not codes(tmp_path / "right", right, by=in_a_block)


@pytest.mark.parametrize("form", ONE_OF_EACH)
def test_so_in_a_script_that_is_watched_as_a_whole(tmp_path, form):
    code, faulty, right = FORMS[form]
    with ts.watch() as watch:
        codes(tmp_path / "faulty", faulty)
    assert code in {each.code for each in watch.findings}
    with ts.watch() as watch:
        codes(tmp_path / "right", right)
    assert not {each.code for each in watch.findings if each.severity.value in ("bug", "risk")}
