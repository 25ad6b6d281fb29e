# SPDX-License-Identifier: Apache-2.0
"""The law of truthful metrics on one process: every example counts once, by its weight, however the data is batched."""

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import truestep as ts
from truestep.engine.learner import Learner, LearnerOptions
from truestep.engine.shared_context import LearnerContext


def identity():
    """A learner whose module gives what it gets."""
    module = nn.Linear(1, 1)
    with torch.no_grad():
        module.weight.fill_(1.0)
        module.bias.fill_(0.0)
    options = LearnerOptions(name="net", precision="float64")
    return Learner(module, lambda p: torch.optim.SGD(p, lr=0.1), options, LearnerContext(torch.device("cpu")))


# thousandths, so that a sum in float64 is within a rounding or two of the exact one
numbers = st.lists(st.integers(-(10**6), 10**6).map(lambda value: value / 1000), min_size=1, max_size=60)


@settings(max_examples=60, deadline=None)
@given(values=numbers, sizes=st.lists(st.integers(1, 9), min_size=60, max_size=60), data=st.data())
def test_a_metric_counts_every_example_once(values, sizes, data):
    weights = data.draw(st.lists(st.integers(0, 5), min_size=len(values), max_size=len(values)))
    column = torch.tensor(values, dtype=torch.float64).unsqueeze(1)
    parts = list(column.split_with_sizes(cut(len(values), sizes)))
    net = identity()

    mean = net.evaluate(lambda batch: net(batch).squeeze(1), parts)
    assert math.isclose(math.fsum(values) / len(values), mean, rel_tol=1e-12, abs_tol=1e-9)

    if any(weights):
        shares = torch.tensor(weights, dtype=torch.float64).split_with_sizes(cut(len(values), sizes))
        pairs = list(zip(parts, shares, strict=True))
        weighted = net.evaluate(lambda pair: ts.weighted(net(pair[0]).squeeze(1), pair[1]), pairs)
        expected = math.fsum(v * w for v, w in zip(values, weights, strict=True)) / sum(weights)
        assert math.isclose(expected, weighted, rel_tol=1e-12, abs_tol=1e-9)


def cut(total: int, sizes: list[int]) -> list[int]:
    """Sizes that add up to `total`."""
    parts = []
    for size in sizes:
        if sum(parts) + size >= total:
            return [*parts, total - sum(parts)]
        parts.append(size)
    raise AssertionError("sizes add up to at least 60")


def test_one_nan_makes_the_metric_nan():
    net = identity()
    column = torch.tensor([[1.0], [float("nan")], [2.0]])
    assert math.isnan(net.evaluate(lambda batch: net(batch).squeeze(1), column.split(1)))


def test_a_metric_that_is_written_to_later_keeps_the_value_it_had(make_learner):
    net = make_learner(nn.Linear(1, 1))
    written = torch.zeros(())

    def loss(batch):
        written.add_(1)
        return ts.weighted(net(batch).squeeze(1), count=written)

    updates = [net.update(loss, torch.ones(2, 1)) for _ in range(3)]
    assert [float(update.metrics["count"]) for update in updates] == [1, 2, 3]
