# SPDX-License-Identifier: Apache-2.0
"""Evaluation: averages by weight, modes per part put back, nothing learnt, NaN shown."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import truestep as ts

# many functions here measure numbers that are known, without a model
pytestmark = pytest.mark.filterwarnings("ignore:The function given to net.evaluate calls no model")


def new(make_learner, **options):
    torch.manual_seed(0)
    return make_learner(
        nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 1)), **options
    )


DATA = [torch.randn(5, 2, generator=torch.Generator().manual_seed(n)) for n in range(3)] + [torch.ones(1, 2)]


def test_a_short_last_batch_counts_by_its_examples(make_learner):
    learner = new(make_learner)
    learner.module.eval()
    with torch.no_grad():
        expected = float(learner.module(torch.cat(DATA)).double().mean())
    learner.module.train()
    assert expected == pytest.approx(learner.evaluate(lambda x: learner(x).squeeze(1), DATA), rel=1e-6)
    assert expected == pytest.approx(learner.evaluate(learner, DATA), rel=1e-6)


def test_weights_dicts_and_weighted_metrics(make_learner):
    learner = new(make_learner)
    batches = [torch.tensor([[1.0], [2.0]]), torch.tensor([[6.0]])]
    assert learner.evaluate(lambda x: x[:, 0], batches) == 3.0
    assert learner.evaluate(lambda x: {"a": x[:, 0], "b": x[:, 0] > 1}, batches) == {
        "a": 3.0,
        "b": pytest.approx(2 / 3),
    }
    assert learner.evaluate(lambda x: ts.weighted(x[:, 0], x[:, 0]), batches) == pytest.approx(41 / 9)
    found = learner.evaluate(
        lambda x: ts.weighted(x[:, 0], (x[:, 0] > 1).float(), twice=2 * x[:, 0]), batches
    )
    assert found == {"loss": 4.0, "twice": 8.0}
    assert list(learner.evaluate(lambda x: {"only": x[:, 0]}, batches)) == ["only"]


@pytest.mark.parametrize("fails", [False, True])
def test_modes_are_put_back_part_by_part_and_nothing_is_learnt(
    make_learner, make_context, snapshot, same, fails
):
    context = make_context()
    learner, other = new(make_learner, context=context), new(make_learner, context=context)
    learner.module[1].eval()
    other.module.eval()
    other.module[2].train()
    before = snapshot(learner), snapshot(other)
    torch.manual_seed(1)
    expected = torch.rand(2)
    torch.manual_seed(1)
    seen = []

    def values(x):
        seen.append((torch.is_grad_enabled(), learner.module[2].training, other.module[2].training))
        if fails and len(seen) == 2:
            raise ZeroDivisionError
        return other(torch.rand(len(x), 2)).squeeze(1) + learner(x).squeeze(1)

    if fails:
        with pytest.raises(ZeroDivisionError):
            learner.evaluate(values, DATA)
    else:
        assert learner.evaluate(values, DATA) == learner.evaluate(values, DATA)
    assert {(False, False, False)} == set(seen)
    assert same(before, (snapshot(learner), snapshot(other)))
    assert torch.equal(expected, torch.rand(2))
    assert torch.is_grad_enabled()
    assert not bool(learner.update(lambda x: learner(x).squeeze(1), DATA[0]).skipped)


def test_nan_is_shown_as_nan(make_learner):
    learner = new(make_learner)
    found = learner.evaluate(
        lambda x: {"good": x[:, 0], "bad": x[:, 0].log()}, [torch.tensor([[-1.0], [1.0]])]
    )
    assert found["good"] == 0.0
    assert math.isnan(found["bad"])
    assert math.isnan(learner.evaluate(lambda x: ts.weighted(x[:, 0], torch.zeros(1)), [torch.ones(1, 1)]))


@pytest.mark.imports_framework
def test_metric_objects(make_learner):
    torchmetrics = pytest.importorskip("torchmetrics")
    learner = new(make_learner)
    metric = torchmetrics.MeanMetric()
    assert (
        learner.evaluate(
            lambda x: x[:, 0], [torch.tensor([[1.0], [2.0]]), torch.tensor([[6.0]])], metric=metric
        )
        == 3.0
    )
    accuracy = torchmetrics.classification.MulticlassAccuracy(3, average=None)
    found = learner.evaluate(lambda x: (x, x), [torch.tensor([0, 1, 2])], metric=accuracy)
    assert found == [1.0, 1.0, 1.0]


class Counting:
    def __init__(self):
        self.seen, self.resets = [], 0

    def update(self, *values):
        self.seen.append(values)

    def compute(self):
        return {"count": torch.tensor(len(self.seen)), "kept": "text"}

    def reset(self):
        self.resets += 1
        self.seen = []


def test_any_object_with_update_compute_and_reset_will_do(make_learner):
    metric = Counting()
    assert new(make_learner).evaluate(lambda x: x, DATA, metric=metric) == {"count": 4, "kept": "text"}
    assert metric.resets == 2


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (lambda x: x.sum(), "returned one number"),
        (lambda x: 3.0, "returned 3.0, a number of Python's, for 'value'"),
        (lambda x: {"a": x[:, 0], "b": "text"}, "returned a str for 'b'"),
        (
            lambda x: {"a": x[:, 0], "b": x[:, :1]},
            r"returned 'b' of shape \(5, 1\) beside another of shape \(5,\)",
        ),
        (lambda x: {}, "empty dict"),
    ],
)
def test_values_that_have_no_mean_are_refused(make_learner, snapshot, same, values, message):
    learner = new(make_learner)
    before = snapshot(learner)
    with pytest.raises(ts.LossError, match=message):
        learner.evaluate(values, DATA)
    assert same(before, snapshot(learner))


def test_nothing_to_evaluate_is_an_error(make_learner):
    used = iter(DATA)
    list(used)
    with pytest.raises(ts.BatchError, match="gave no batch"):
        new(make_learner).evaluate(lambda x: x, used)


def test_a_table_that_evaluation_kept_can_be_used_by_later_updates(make_learner, same):
    class Rotary(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Linear(2, 2)
            self.table = None

        def forward(self, x):
            if self.table is None:
                self.table = torch.linspace(0.5, 1.0, 2).sin() + self.weight.weight.detach()[0]
            return (self.weight(x) * self.table).sum(1)

    def train(evaluated):
        torch.manual_seed(0)
        learner = make_learner(Rotary())
        if evaluated:
            learner.evaluate(learner, [torch.ones(3, 2)])
        learner.update(lambda x: learner(x).square(), torch.ones(3, 2))
        return dict(learner.module.state_dict())

    assert same(train(True), train(False))


@pytest.mark.imports_framework
def test_a_metric_that_takes_other_values_says_what_to_return(make_learner):
    metric = pytest.importorskip("torchmetrics").MeanSquaredError()
    with pytest.raises(
        ts.OptionError, match=r"returned 1 value a batch.*'target'.*return net\(inputs\), labels"
    ):
        new(make_learner).evaluate(lambda x: x, DATA, metric=metric)
    with pytest.raises(ts.OptionError, match="returned 3 values a batch"):
        new(make_learner).evaluate(lambda x: (x, x, x), DATA, metric=metric)


def test_an_error_within_a_metric_is_its_own(make_learner):
    class Broken:
        def update(self, value):
            len(7)

        def compute(self): ...
        def reset(self): ...

    with pytest.raises(TypeError, match="no len"):
        new(make_learner).evaluate(lambda x: x, DATA, metric=Broken())


class Largest:
    def reset(self):
        self.value = -math.inf

    def update(self, values):
        assert len(values)
        self.value = max(self.value, float(values.max()))

    def compute(self):
        return self.value


BATCHES = {
    "tensors": lambda size: torch.arange(2.0 * size).reshape(size, 2),
    "pairs": lambda size: (torch.ones(size, 2), torch.arange(1.0 * size)),
    "columns in a dict": lambda size: {"x": torch.ones(size, 2), "y": torch.arange(1.0 * size)},
    "samples in a list": lambda size: [torch.full((2,), float(number)) for number in range(size)],
}


def values_of(batch):
    if isinstance(batch, list):
        return torch.stack(batch).sum(1)
    return (
        batch.sum(1)
        if isinstance(batch, torch.Tensor)
        else [*(batch.values() if isinstance(batch, dict) else batch)][1]
    )


@settings(max_examples=40)
@given(kind=st.sampled_from([*BATCHES]), sizes=st.lists(st.integers(0, 3), min_size=1, max_size=6))
def test_an_empty_batch_counts_nothing(make_learner, kind, sizes):
    learner, batches = make_learner(nn.Linear(2, 1)), [BATCHES[kind](size) for size in sizes]
    full = [batch for batch, size in zip(batches, sizes, strict=True) if size]
    if not full:
        with pytest.raises(ts.BatchError, match="no batch with an example in it"):
            learner.evaluate(values_of, batches)
        return
    assert learner.evaluate(values_of, batches) == learner.evaluate(values_of, full)
    found = learner.evaluate(values_of, batches, metric=Largest())
    assert found == learner.evaluate(values_of, full, metric=Largest())


def test_a_function_without_a_return_is_named(make_learner):
    net = new(make_learner)
    with pytest.raises(
        ts.LossError, match="returned None, so nothing was measured: it ends without a return"
    ):
        net.evaluate(lambda batch: None, [torch.zeros(2, 3)])
