# SPDX-License-Identifier: Apache-2.0
"""Losses one after another: vectors, scalars, a promised weight, and a block that is left early."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import truestep as ts

DATA = torch.randn(10, 3, generator=torch.Generator().manual_seed(0))


def new(make_learner, **options):
    torch.manual_seed(0)
    return make_learner(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)), **options)


def raise_after(_):
    raise ZeroDivisionError


def gradient(learner):
    return torch.cat([t.grad.double().reshape(-1) for t in learner._parts.weights.stepped])


@pytest.mark.parametrize("precision", ["float32", "float64", "bf16", "fp16-mixed", "O2"])
def test_losses_per_example_are_averaged_over_all_of_them(make_learner, precision):
    options = {"precision": precision, "clip": ts.ClipNorm(0.5)}
    if precision in ("fp16-mixed", "O2"):
        options["loss_scale"] = 256.0
    whole, parts = new(make_learner, **options), new(make_learner, **options)
    expected = whole.update(lambda x: whole(x).squeeze(1).square() * 9, DATA)
    with parts.accumulating() as update:
        means = [update.backward(parts(x).squeeze(1).square() * 9) for x in DATA.split([1, 6, 3])]
    assert not any(mean.requires_grad for mean in means)
    tolerance = {"float64": 1e-12, "float32": 1e-6}.get(precision, 2e-2)
    assert torch.allclose(gradient(whole), gradient(parts), rtol=tolerance, atol=tolerance * 0.1)
    assert float(expected.loss) == pytest.approx(float(update.result.loss), rel=tolerance)
    assert (float(update.result.weight), parts._parts.counters.updates) == (10, 1)


def test_token_weights_and_a_promised_weight(make_learner):
    weights = torch.arange(10.0) % 3
    whole = new(make_learner, precision="float64")
    loss = lambda net, x, w: ts.weighted(net(x).squeeze(1), w.double())
    whole.update(lambda b: loss(whole, *b), (DATA, weights))
    for promised in (None, float(weights.sum())):
        parts = new(make_learner, precision="float64")
        with parts.accumulating(weight=promised) as update:
            for x, w in zip(DATA.split(4), weights.split(4), strict=True):
                update.backward(loss(parts, x, w))
        assert torch.allclose(gradient(whole), gradient(parts), rtol=1e-12, atol=1e-15)
    half = new(make_learner, precision="float64")
    with half.accumulating(weight=2 * float(weights.sum())) as update:
        update.backward(loss(half, DATA, weights))
    assert torch.allclose(gradient(whole) / 2, gradient(half), rtol=1e-12, atol=1e-15)
    expected = (
        half.module(DATA.double()).detach().squeeze(1) * weights
    ).sum()  # after the step: only the sign of life
    assert torch.isfinite(expected)


def test_the_loss_shown_is_divided_by_the_promised_weight(make_learner):
    learner = make_learner(nn.Linear(1, 1))
    with torch.no_grad():
        learner.weight.fill_(1.0)
        learner.bias.fill_(0.0)
    with learner.accumulating(weight=20.0) as update:
        update.backward(learner(torch.tensor([[1.0], [2.0]])).squeeze(1))
        update.backward(learner(torch.tensor([[7.0]])).squeeze(1))
    assert float(update.result.loss) == 0.5
    assert learner.bias.grad.item() == pytest.approx(3 / 20)


def test_scalars_add_up_as_they_are_where_the_weight_is_one(make_learner):
    whole, parts = new(make_learner), new(make_learner)
    whole.update(lambda x: whole(x[:4]).mean() + 3 * whole(x[4:]).square().mean(), DATA)
    with parts.accumulating(weight=1) as update:
        update.backward(parts(DATA[:4]).mean())
        update.backward(3 * parts(DATA[4:]).square().mean())
    assert torch.allclose(gradient(whole), gradient(parts), atol=1e-7)


@settings(max_examples=25)
@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=5), as_tensor=st.booleans(), data=st.data())
def test_means_of_parts_with_their_weights_are_the_mean_of_all(make_learner, sizes, as_tensor, data):
    rows = torch.randn(sum(sizes), 3, generator=torch.Generator().manual_seed(sum(sizes)))
    whole, parts = new(make_learner, precision="float64"), new(make_learner, precision="float64")
    block_weight = data.draw(st.sampled_from([None, float(len(rows))]))
    expected = whole.update(lambda x: ts.weighted(whole(x).mean(), accuracy=x.mean()), rows)
    with parts.accumulating(weight=block_weight) as update:
        for part in rows.split(sizes):
            count = torch.tensor(len(part)) if as_tensor else len(part)
            mean = update.backward(ts.weighted(parts(part).mean(), accuracy=part.mean()), weight=count)
            assert not mean.requires_grad
    assert torch.allclose(gradient(whole), gradient(parts), rtol=1e-12, atol=1e-15)
    assert float(expected.loss) == pytest.approx(float(update.result.loss), rel=1e-12)
    assert float(expected.metrics["accuracy"]) == pytest.approx(
        float(update.result.metrics["accuracy"]), rel=1e-5, abs=1e-6
    )
    assert float(update.result.weight) == len(rows)


@pytest.mark.parametrize("sizes", [[24, 8], [8, 24], [16, 16], [1, 1, 30]])
def test_a_second_scalar_of_unknown_weight_is_refused_before_it_counts(make_learner, snapshot, same, sizes):
    learner, rows = new(make_learner), torch.randn(32, 3)
    before = snapshot(learner)

    def block():
        with learner.accumulating() as update:
            for part in rows.split(sizes):
                update.backward(learner(part).square().mean())

    with pytest.raises(ts.LossError) as error:
        block()
    assert "update.backward(part, weight=len(x))" in str(error.value)
    assert "net.accumulating(weight=1)" in str(error.value)
    assert same(before, snapshot(learner))


def test_one_scalar_alone_is_the_update_of_its_loss(make_learner):
    whole, parts = new(make_learner), new(make_learner)
    whole.update(lambda x: whole(x).square().mean(), DATA)
    with parts.accumulating() as update:
        update.backward(parts(DATA).square().mean())
    assert torch.equal(gradient(whole), gradient(parts))


@pytest.mark.parametrize(
    ("weight", "loss", "message"),
    [
        (
            24,
            lambda net: net(DATA).squeeze(1),
            r"losses of shape \(10,\); weight= says how many examples a scalar",
        ),
        (24, lambda net: ts.weighted(net(DATA), torch.ones(10, 1)), r"losses of shape \(10, 1\)"),
        (24, lambda net: 3.0, "was given float"),
        (-1, lambda net: net(DATA).mean(), "give at least 0"),
        (float("inf"), lambda net: net(DATA).mean(), "one finite number"),
        (float("nan"), lambda net: net(DATA).mean(), "give at least 0"),
        (torch.ones(2), lambda net: net(DATA).mean(), "one finite number"),
        ("24", lambda net: net(DATA).mean(), "was given a str"),
        (torch.tensor(-1.0), lambda net: net(DATA).mean(), "negative weights"),
    ],
)
def test_a_weight_that_says_nothing_of_a_scalar_is_refused(
    make_learner, snapshot, same, weight, loss, message
):
    learner = new(make_learner)
    before = snapshot(learner)
    with pytest.raises((ts.LossError, ts.OptionError), match=message), learner.accumulating() as update:
        update.backward(loss(learner), weight=weight)
    assert same(before, snapshot(learner))


def test_float32_parts_stay_float32_in_their_backward(make_learner):
    """Autocast that is still on during the backward would round the gradients of what was computed outside it."""
    learner = new(make_learner, precision="bf16-mixed")
    reference = new(make_learner, precision="float32")

    def loss(net, x):
        with torch.autocast("cpu", enabled=False):
            return net.module(x).squeeze(1).square()

    reference.update(lambda x: loss(reference, x), DATA)
    with learner.accumulating() as update:
        update.backward(loss(learner, DATA))
    assert torch.equal(gradient(reference), gradient(learner))


def test_an_exception_inside_leaves_nothing(make_learner, make_context, snapshot, same):
    context = make_context()
    learner, other = new(make_learner, context=context), new(make_learner, context=context)
    learner.module.append(nn.BatchNorm1d(1))
    learner = make_learner(nn.Sequential(nn.Linear(3, 1), nn.BatchNorm1d(1)), context=context)
    before = snapshot(learner), snapshot(other)
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    with pytest.raises(ZeroDivisionError), learner.accumulating() as update:
        raise_after(update.backward(learner(DATA).squeeze(1)))
    assert same(before, (snapshot(learner), snapshot(other)))
    assert update.result is None
    assert torch.equal(expected, torch.rand(2))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (lambda net, update: None, "No loss was added"),
        (
            lambda net, update: [update.backward(net(DATA).mean()), update.backward(net(DATA).squeeze(1))],
            "mixes scalar",
        ),
        (lambda net, update: update.backward(net(DATA)), r"shape \(10, 1\), expected \(batch,\)"),
        (lambda net, update: update.backward(3.0), "returned float"),
        (lambda net, update: update.backward(net(DATA).detach().squeeze(1)), "no gradient"),
        (lambda net, update: update.backward(net(DATA).squeeze(1) * float("nan")), "is nan"),
    ],
)
def test_what_can_not_be_added_is_refused_and_nothing_is_lost(make_learner, snapshot, same, body, message):
    learner = new(make_learner)
    before = snapshot(learner)
    with pytest.raises(ts.LossError, match=message), learner.accumulating() as update:
        body(learner, update)
    assert same(before, snapshot(learner))
    assert not bool(learner.update(lambda x: learner(x).squeeze(1), DATA).skipped)


@pytest.mark.parametrize("fails", ["in the block", "empty block", "not finite", "update"])
def test_after_an_exception_the_next_update_draws_as_if_it_had_not_been(make_learner, make_context, fails):
    context = make_context()
    context.advance(3)
    learner = new(make_learner, context=context)
    noisy = lambda x: (learner(x) * torch.rand(len(x), 1)).squeeze(1).square()
    drawn = []

    def loss(x):
        drawn.append(torch.rand(1))
        return noisy(x)

    def fail():
        if fails == "update":
            learner.update(lambda _: 1 / 0, DATA)
        with learner.accumulating() as update:
            if fails == "not finite":
                update.backward(noisy(DATA) * float("nan"))
            elif fails == "in the block":
                update.backward(noisy(DATA))
                raise ZeroDivisionError

    with pytest.raises((ts.LossError, ZeroDivisionError)):
        fail()
    assert (context.step, learner._parts.keys.count, context.is_busy) == (3, 0, False)
    learner.update(loss, DATA)
    fresh = make_context()
    fresh.advance(3)
    other = new(make_learner, context=fresh)
    other.update(lambda x: drawn.append(torch.rand(1)) or other(x).squeeze(1), DATA)
    assert torch.equal(*drawn)


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan"), float("inf")])
def test_a_weight_that_can_not_divide_is_refused(make_learner, weight):
    with pytest.raises(ts.OptionError, match="must be positive"):
        new(make_learner).accumulating(weight=weight)


def test_lbfgs_has_no_block(make_learner):
    learner = new(make_learner, optimizer=torch.optim.LBFGS)
    with pytest.raises(ts.OptionError, match="evaluate the loss again"), learner.accumulating():
        pass


def test_a_learner_that_starts_later_runs_the_block_and_learns_nothing(
    make_learner, make_context, snapshot, same
):
    context = make_context()
    learner = new(make_learner, context=context, starts_at=2)
    before = snapshot(learner)
    with learner.accumulating() as update:
        assert torch.isfinite(update.backward(learner(DATA).squeeze(1)))
    assert (bool(update.result.skipped), same(before, snapshot(learner))) == (True, True)
    context.advance(2)
    with learner.accumulating() as update:
        update.backward(learner(DATA).squeeze(1))
    assert (bool(update.result.skipped), learner._parts.counters.updates) == (False, 1)
