# SPDX-License-Identifier: Apache-2.0
"""The moving average beside torch's AveragedModel, bit for bit where torch's is defined."""

import pytest
import torch
from support.card import Card
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import truestep as ts
from truestep.engine.shared_context import LearnerContext

DATA = torch.randn(20, 8, 3, generator=torch.Generator().manual_seed(1))


def module():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.PReLU(), nn.Linear(5, 1))


def warmed(decay):
    def average(averaged, current, num_averaged):
        count = int(num_averaged)  # torch counts in a tensor, whose quotient would be one of float32
        if averaged[0].is_floating_point():
            torch._foreach_lerp_(averaged, current, 1 - min(decay, (1 + count) / (10 + count)))

    return average


def by_torch(average, *, start, use_buffers):
    """The hand-written loop: torch's average is updated after each step from the step number `start` on."""
    model = module()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    averaged = AveragedModel(model, multi_avg_fn=average, use_buffers=use_buffers)
    for number, batch in enumerate(DATA, 1):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        if number >= start:
            averaged.update_parameters(model)
    return dict(averaged.module.state_dict())


def by_the_engine(make_learner, options):
    learner = make_learner(module(), ema=options)
    for batch in DATA:
        learner.update(lambda x: learner(x).squeeze(1).square(), batch)
    now = {name: tensor.clone() for name, tensor in learner.module.state_dict().items()}
    with learner.averaged() as averaged:
        found = {name: tensor.clone() for name, tensor in averaged.state_dict().items()}
    assert all(torch.equal(now[name], tensor) for name, tensor in learner.module.state_dict().items())
    return found


@pytest.mark.sliced(3)
@pytest.mark.parametrize("buffers", [False, True])
@pytest.mark.parametrize("start", [1, 7])
@pytest.mark.parametrize("warmup", [False, True])
@pytest.mark.parametrize("decay", [0.0, 0.5, 0.9, 0.999])
def test_it_is_torchs_bit_for_bit(make_learner, same, decay, warmup, start, buffers):
    average = warmed(decay) if warmup else get_ema_multi_avg_fn(decay)
    expected = by_torch(average, start=start, use_buffers=buffers)
    found = by_the_engine(make_learner, ts.EMA(decay=decay, warmup=warmup, starts_at=start, buffers=buffers))
    # torch averages the count of batches too and cuts the fraction off; ours stays the module's.
    assert same(
        {name: tensor for name, tensor in expected.items() if tensor.is_floating_point()},
        {name: tensor for name, tensor in found.items() if tensor.is_floating_point()},
    )
    assert int(found["1.num_batches_tracked"]) == len(DATA)


def test_averaged_buffers_go_on_from_a_state_and_follow_assignments(make_learner, same):
    class Codebook(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(3))
            self.register_buffer("centre", torch.zeros(3))
            self.register_buffer("count", torch.zeros((), dtype=torch.long))

        def forward(self, x):
            self.centre = x.mean(0).detach()  # assigned, not written to
            self.count += 1
            return (x * self.scale).sum(1)

    def new():
        return make_learner(Codebook(), name="net", ema=ts.EMA(decay=0.5, warmup=False, buffers=True))

    whole, first, second = new(), new(), new()
    expected = torch.zeros(3)
    for number, batch in enumerate(DATA[:6]):
        whole.update(lambda x: whole(x).square(), batch)
        trained = first if number < 3 else second
        if number == 3:
            second.load_training_state(first.training_state())
        trained.update(lambda x, net=trained: net(x).square(), batch)
        expected = expected.lerp(batch.mean(0), 0.5)
    state = whole._parts.average.state_dict()
    assert state.keys() == {"scale", "centre"}
    assert torch.equal(state["centre"], expected)
    assert same(state, second._parts.average.state_dict())


def test_a_skipped_update_leaves_the_average_of_buffers(make_learner, make_context, same):
    learner = make_learner(module(), context=make_context(nonfinite="skip"), ema=ts.EMA(buffers=True))
    loss = lambda x: learner(x).squeeze(1)
    learner.update(loss, DATA[0])
    before = {name: tensor.clone() for name, tensor in learner._parts.average.state_dict().items()}
    assert bool(learner.update(loss, DATA[1] * float("nan")).skipped)
    assert same(before, learner._parts.average.state_dict())


@pytest.mark.parametrize("options", [{"buffers": "yes"}, {"warmup": 5}])
def test_flags_are_flags(options):
    with pytest.raises(ts.OptionError, match="write True or False"):
        ts.EMA(**options)


def test_an_average_in_double_precision_is_as_exact_on_a_card(make_learner):
    """The flag that may hold it back is of single precision, and rounded the weight of each update."""

    def average(place):
        torch.manual_seed(0)
        module, context = nn.Linear(4, 2), LearnerContext(torch.device(place))
        options = {"ema": ts.EMA(decay=0.9), "precision": "float64", "name": "net"}
        net = make_learner(module, lambda p: torch.optim.SGD(p, lr=0.1), context, **options)
        rows = torch.ones(3, 4, dtype=torch.float64).to(place)
        for _ in range(5):
            net.update(lambda batch: net(batch).square().sum(1), rows)
        with net.averaged():
            return net.module.weight.detach().cpu().clone()

    expected = average("cpu")
    with Card():
        torch.testing.assert_close(average("cuda"), expected, rtol=1e-14, atol=0)
