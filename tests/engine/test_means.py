# SPDX-License-Identifier: Apache-2.0
"""Means are taken of many updates at once, and have the bits that each has alone."""

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn

import truestep as ts
from truestep.core.errors import NonFiniteError
from truestep.engine.clipping.base import total_gradient_norm
from truestep.engine.deferred_means import (
    AT_ONCE,
    MANY,
    MOST_NUMBERS,
    MOST_VALUES,
    deferred_mean,
    deferred_mean_value,
    deferred_means,
    metric_means_as_numbers,
)
from truestep.engine.result import DeferredGradientNorm, read_gradient_norms

LENGTHS = (1, 2, 7, 32, 33, MOST_NUMBERS, MOST_NUMBERS + 1, 500, MOST_VALUES, MOST_VALUES + 1)


@settings(max_examples=30, deadline=None)
@given(lengths=st.lists(st.sampled_from(LENGTHS), min_size=1, max_size=40), seed=st.integers(0, 99))
def test_each_mean_has_the_bits_that_it_has_alone(lengths, seed):
    generator = torch.Generator().manual_seed(seed)
    values = [100 * torch.randn(length, generator=generator) for length in lengths]
    many = [deferred_mean(each) for each in values]
    expected = [float(each.mean()) for each in values]
    assert expected == metric_means_as_numbers(many) == [float(deferred_mean_value(each)) for each in many]


KINDS = {
    "of one length": lambda each: each,
    "of another type": lambda each: each.double(),
    "with a gradient": lambda each: each.requires_grad_() * 2,
    "in a row of others": lambda each: each.repeat_interleave(2)[::2],
}


@settings(max_examples=30, deadline=None)
@given(
    length=st.sampled_from(LENGTHS),
    kinds=st.lists(st.sampled_from(list(KINDS)), min_size=1, max_size=3 * MANY),
    seed=st.integers(0, 99),
)
@example(length=32, kinds=["of one length"] * 3000, seed=0)
@example(length=MOST_VALUES, kinds=["with a gradient"] * 2 * MANY, seed=0)
def test_means_of_many_metrics_of_one_update_have_the_bits_that_each_has_alone(length, kinds, seed):
    generator = torch.Generator().manual_seed(seed)
    many = [KINDS[kind](100 * torch.randn(length, generator=generator)) for kind in kinds]
    noted = deferred_means(many)
    assert str([float(each.detach().mean()) for each in many]) == str(
        metric_means_as_numbers(noted)
    )  # NaN, too
    assert not any(isinstance(each, torch.Tensor) and each.requires_grad for each in noted)


@pytest.mark.parametrize("count", [1, MANY - 1, MANY, 100])
@pytest.mark.parametrize("weights", [None, "some"])
@pytest.mark.parametrize("micro_batch", [None, 3])
def test_metrics_keep_their_order_and_values_however_many_there_are(
    make_learner, count, weights, micro_batch
):
    net = make_learner(nn.Linear(3, 1), lambda p: torch.optim.SGD(p, lr=0.0), micro_batch=micro_batch)
    batch = torch.randn(8, 4)
    named = [("vector", "scalar", "integers", "doubles")[number % 4] + str(number) for number in range(count)]

    def value(name, row):
        by = int(name.lstrip("abcdefghijklmnopqrstuvwxyz")) + 1
        if name.startswith("scalar"):
            return torch.tensor(float(by))
        return {"v": row * by, "i": (row * by).round().long(), "d": row.double() * by}[name[0]]

    def loss(rows):
        metrics = {name: value(name, rows[:, 3]) for name in named}
        return ts.weighted(net(rows[:, :3]).squeeze(1), rows[:, 0].abs() if weights else None, **metrics)

    found = net.update(loss, batch).metrics
    assert list(found) == named
    shares = batch[:, 0].abs() if weights else torch.ones(8)
    for name in named:
        expected = (value(name, batch[:, 3]) * shares).sum() / shares.sum()
        if name.startswith("scalar"):
            expected = value(name, batch[:, 3])
        torch.testing.assert_close(found[name].double(), expected.double(), rtol=1e-5, atol=1e-5)


def test_a_pass_is_too_short_to_be_divided_among_threads():
    many = [deferred_mean(torch.randn(MOST_VALUES)) for _ in range(2 * AT_ONCE // MOST_VALUES)]
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert metric_means_as_numbers(many) == [float(each.mean()) for each in many]
    finally:
        torch.set_num_threads(before)


def test_what_the_caller_does_with_its_losses_afterwards_changes_none_that_was_noted(make_learner):
    net = make_learner(nn.Linear(3, 1), lambda p: torch.optim.SGD(p, lr=0.1))
    kept = []

    def loss(batch):
        values = net(batch).squeeze(1)
        kept.append(values.detach())
        return ts.weighted(values, again=values.detach())

    batch = torch.randn(8, 3)
    expected = net(batch).mean().detach()
    update = net.update(loss, batch)
    kept[0].abs_().add_(1)  # priorities, say
    assert torch.equal(expected, update.loss)
    assert torch.equal(expected, update.metrics["again"])


@pytest.mark.parametrize("clip", [None, ts.ClipNorm(1.0), ts.ClipNorm(1.0, float("inf"))])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("count", [2, MOST_NUMBERS + 1])
def test_a_loss_that_is_not_finite_is_seen_where_its_gradient_is(make_learner, clip, bad, count):
    net = make_learner(nn.Linear(3, 1), lambda p: torch.optim.SGD(p, lr=0.1), clip=clip)
    before = net.weight.detach().clone()

    def loss(batch):
        return net(batch).squeeze(1) + torch.tensor([0.0] * (count - 1) + [bad])

    with pytest.raises(NonFiniteError, match=f"The loss of .* is {bad}"):
        net.update(loss, torch.randn(count, 3))
    assert torch.equal(before, net.weight)


@pytest.mark.parametrize("clip", [None, ts.ClipNorm(1.0)])
@pytest.mark.parametrize("count", [2, MOST_NUMBERS + 1])
def test_a_loss_whose_square_overflows_is_finite(make_learner, clip, count):
    net = make_learner(nn.Linear(3, 1), lambda p: torch.optim.SGD(p, lr=0.1), clip=clip)
    update = net.update(lambda batch: net(batch).squeeze(1) + 1e30, torch.randn(count, 3))
    assert float(update.loss) == pytest.approx(1e30)


def test_a_metric_that_is_not_finite_stops_nothing(make_learner):
    net = make_learner(nn.Linear(3, 1), lambda p: torch.optim.SGD(p, lr=0.1))
    nan = torch.full((2,), float("nan"))
    update = net.update(lambda batch: ts.weighted(net(batch).squeeze(1), ratio=nan), torch.randn(2, 3))
    assert update.metrics["ratio"].isnan()


@settings(max_examples=20, deadline=None)
@given(
    many=st.lists(st.lists(st.sampled_from(LENGTHS), min_size=1, max_size=3), min_size=1, max_size=4),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
    seed=st.integers(0, 99),
)
def test_a_norm_that_is_computed_later_has_the_bits_of_one_computed_at_once(many, dtype, seed):
    generator = torch.Generator().manual_seed(seed)
    gradients = [[torch.randn(2, size, generator=generator).to(dtype) for size in sizes] for sizes in many]
    counts = [[2 * size for size in sizes] for sizes in many]
    alone, together = ([*map(DeferredGradientNorm, gradients, counts)] for _ in range(2))
    expected = [float(total_gradient_norm(each)) for each in gradients]
    for each in gradients:
        torch._foreach_zero_(each)
    read_gradient_norms(together[:1])  # some are read sooner: their copies are let go of
    read_gradient_norms(together)
    assert expected == [*map(float, alone)] == [each.number for each in together]


class Turned(torch.autograd.Function):
    """Gives its weight a gradient whose values lie in another order."""

    @staticmethod
    def forward(context, weight):
        return weight.clone()

    @staticmethod
    def backward(context, gradient):
        return torch.randn(gradient.shape[::-1]).t()


@pytest.mark.parametrize("turn", [Turned.apply, lambda weight: weight], ids=["turned", "as it is"])
def test_a_line_has_the_norm_of_the_gradient_however_that_lies_in_memory(make_learner, turn):
    model = nn.Linear(33, 17)
    net = make_learner(model, lambda p: torch.optim.SGD(p, lr=0.1))
    batch = torch.randn(4, 33)
    update = net.update(
        lambda batch: nn.functional.linear(batch, turn(model.weight), model.bias).sum(1), batch
    )
    noted = float(update.note_norm())
    assert (
        noted
        == float(update.gradient_norm)
        == float(total_gradient_norm([p.grad for p in model.parameters()]))
    )
