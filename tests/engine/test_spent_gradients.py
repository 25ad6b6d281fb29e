# SPDX-License-Identifier: Apache-2.0
"""Gradients that a learner has stepped with are not held through an evaluation or a save; all others stay."""

import pytest
import torch
from torch import nn

import truestep as ts

DATA = torch.randn(12, 3, generator=torch.Generator().manual_seed(1))


def a_learner(run, **options):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    return run.learner(module, lambda p: torch.optim.AdamW(p, lr=0.01), **options)


def loss_of(net):
    return lambda batch: net(batch).squeeze(1).square()


def gradients(net):
    return [each.grad for each in net._parts.weights.stepped]


def look(what, run, net):
    """Evaluate, or save."""
    if what == "evaluation":
        net.evaluate(loss_of(net), [DATA])
    else:
        run.session._saver.save_now("asked for")


@pytest.fixture
def run(tmp_path):
    with ts.Run(tmp_path / "run", progress=False, quiet=True) as run:
        yield run


@pytest.mark.sliced(3)
@pytest.mark.parametrize("what", ["evaluation", "save"])
@pytest.mark.parametrize(
    "options", [{}, {"clip": ts.ClipNorm(0.1)}, {"precision": "bf16-mixed"}, {"ema": ts.EMA()}]
)
def test_they_are_let_go_and_their_norm_is_kept(tmp_path, what, options):
    norms = []
    for looks in (False, True):
        with ts.Run(tmp_path / str(looks), progress=False, quiet=True) as run:
            net = a_learner(run, **options)
            other = a_learner(run, name="other")
            for _ in range(3):
                update = net.update(loss_of(net), DATA)
                other.update(loss_of(other), DATA)
                if looks:
                    look(what, run, net)
                    assert gradients(net) == gradients(other) == [None] * 4
                    assert update.has_gradient
                norms.append(float(update.gradient_norm))
            norms.append([each.detach().tolist() for each in net.parameters()])
    assert norms[: len(norms) // 2] == norms[len(norms) // 2 :]


@pytest.mark.parametrize("what", ["evaluation", "save"])
def test_what_a_backward_by_hand_made_stays(run, what, capsys):
    net = a_learner(run)
    net.update(loss_of(net), DATA)
    loss_of(net)(DATA).mean().backward()  # on top
    before = [each.clone() for each in gradients(net)]
    look(what, run, net)
    assert all(map(torch.equal, before, gradients(net)))
    net.zero_grad()
    loss_of(net)(DATA).mean().backward()
    look(what, run, net)
    assert all(each is not None for each in gradients(net))


def test_those_of_an_update_under_way_stay(run):
    net = a_learner(run)
    net.update(loss_of(net), DATA)
    with net.accumulating() as update:
        update.backward(loss_of(net)(DATA[:6]))
        net.evaluate(loss_of(net), [DATA])
        assert all(each is not None for each in gradients(net))
        update.backward(loss_of(net)(DATA[6:]))


def test_the_norm_of_an_older_update_is_gone_as_before(run):
    net = a_learner(run)
    first = net.update(loss_of(net), DATA)
    net.update(loss_of(net), DATA)
    net.evaluate(loss_of(net), [DATA])
    with pytest.raises(ts.LossError, match="right after the update"):
        _ = first.gradient_norm


def test_a_gradient_made_where_a_spent_one_was_freed_stays(run):
    """An object made behind a freed one may have its `id`."""
    net = run.learner(nn.Linear(3, 1, bias=False), lambda p: torch.optim.AdamW(p, lr=0.01))
    (weight,) = net.parameters()
    net.update(loss_of(net), DATA)
    spent, kept = id(weight.grad), []
    net.zero_grad()
    while id(made := torch.ones_like(weight, requires_grad=False)) != spent:
        kept.append(made)  # or the next would lie where this one did
        assert len(kept) < 100_000
    weight.grad = made
    look("evaluation", run, net)
    assert weight.grad is made
