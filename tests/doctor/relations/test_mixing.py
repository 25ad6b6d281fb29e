# SPDX-License-Identifier: Apache-2.0
"""Where examples first mix is named by operation, line and layer; gradients are compared by parameter."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from truestep.doctor.relations.examples import find_examples
from truestep.doctor.relations.gradients import add_gradients, compare_gradients, compare_with_halves
from truestep.doctor.relations.mixing import RowSumRecorder, distinct_batch_size, first_mixing
from truestep.doctor.relations.noise import SymmetricNoise

COUNT, WIDTH = 7, 5


class Centred(nn.Module):
    def forward(self, x):
        return x - x.mean(0)


# what is computed, the operation that is to be named, and a word of the meaning under which it is right
CASES = {
    "nothing mixes": (lambda x: F.softmax(x, 1).square().mean(), None, None),
    "a mean": (lambda x: (x * 2).mean(), None, None),
    "rows and columns": (lambda x: (x[:, :1] - x[:, 1]).mean(), "sub", None),
    "softmax": (lambda x: x.softmax(0).sum(), "softmax", None),
    "view": (lambda x: x.contiguous().view(WIDTH, COUNT).t().square().sum(), "view", None),
    "similarities": (lambda x: (x @ x.t()).logsumexp(1).sum(), "mm", "compared with all others"),
    "distances": (lambda x: torch.cdist(x, x).sum(), "cdist", "compared with all others"),
    "normalised": (lambda x: ((x - x.mean()) / x.std()).abs().sum(), "sub", "figure of the whole batch"),
    "in a layer": (lambda x: Centred()(x).abs().sum(), "sub", "figure of the whole batch"),
    "ranked": (lambda x: x[:, 0].sort().values.cumsum(0).sum(), "sort", "ranked"),
    "paired": (lambda x: (x * x.roll(1, 0)).sum(), "roll", "paired with another"),
    "attention": (lambda x: ATTENTION(x, x, x)[0].square().sum(), "mm", None),
}
ATTENTION = nn.MultiheadAttention(WIDTH, 1)  # of (sequence, features): the examples are taken for a sequence


def recorded(compute, batch):
    with RowSumRecorder(COUNT, {"attention": ATTENTION}) as record:
        compute(batch)
    return record.calls


@pytest.mark.parametrize("row", [0, 3, COUNT - 1])
@pytest.mark.parametrize("name", CASES)
def test_the_first_operation_that_mixes_is_named(name, row):
    compute, operation, meaning = CASES[name]
    torch.manual_seed(0)
    examples = find_examples(torch.randn(COUNT, WIDTH))
    before, after = (recorded(compute, batch) for batch in (examples.fresh(), examples.with_changed(row)))
    found = first_mixing(before, after, row)
    if operation is None:
        assert found is None
        return
    assert operation in found.operation
    assert (
        found.place.startswith("tests/doctor/relations/test_mixing.py:") or "test_mixing.py:" in found.place
    )
    assert (found.meaning is None) is (meaning is None)
    assert meaning is None or meaning in found.meaning
    if name == "in a layer":
        assert found.layer == "Centred"


@pytest.mark.parametrize("writes", ["a buffer that rests", "a buffer", "python's number"])
def test_what_does_not_come_to_the_loss_mixes_nothing(writes):
    buffer = torch.ones(WIDTH)

    def compute(x):
        averages = x.sum(0, keepdim=True).expand(COUNT, WIDTH) * x  # of all examples
        buffer.copy_(averages[0])
        factor = averages.mean().item() if writes == "python's number" else 1.0
        used = x * (buffer if writes.startswith("a buffer") else 1.0)
        return [(factor * used.roll(1, 0) * x).sum()]

    examples, calls = find_examples(torch.randn(COUNT, WIDTH)), []
    for batch in (examples.fresh(), examples.with_changed(0)):
        frozen = [buffer] if "rests" in writes else []
        with SymmetricNoise(COUNT, frozen=frozen), RowSumRecorder(COUNT, frozen=frozen) as record:
            loss = compute(batch)
        record.reaches(loss)
        calls.append(record.calls_that_reach())
    assert (first_mixing(*calls, 0).operation == "roll") is ("rests" in writes)


def test_a_number_of_examples_is_chosen_that_is_no_other_dimension():
    assert distinct_batch_size(32, [8, 16, 12]) == 13
    assert distinct_batch_size(12, [11, 22, 10]) == 12
    assert distinct_batch_size(4, [4, 3]) == 4  # none fits


sizes = st.lists(st.integers(1, 6), min_size=1, max_size=4)


@given(sizes, st.floats(0.1, 10), st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_one_factor_for_all_parameters_is_found(lengths, factor, seed):
    drawn = torch.Generator().manual_seed(seed)
    whole = {str(place): torch.randn(length, generator=drawn) + 0.1 for place, length in enumerate(lengths)}
    scaled = {name: factor * each for name, each in whole.items()}
    assert compare_gradients(scaled, whole).factor == pytest.approx(factor, rel=1e-5)
    assert compare_gradients(whole, whole).difference == 0
    turned = {**scaled, "0": -scaled["0"]}
    if whole["0"].norm() > 1e-2 * max(each.norm() for each in whole.values()):
        assert compare_gradients(turned, whole).factor is None


@given(sizes, st.floats(0, 1), st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_any_weighted_mean_of_the_halves_is_the_whole(lengths, weight, seed):
    drawn = torch.Generator().manual_seed(seed)
    first, second = (
        {str(place): torch.randn(length, generator=drawn) for place, length in enumerate(lengths)}
        for _ in range(2)
    )
    whole = {name: weight * first[name] + (1 - weight) * second[name] for name in first}
    assert compare_with_halves(first, second, whole).difference < 1e-4
    whole["more"] = torch.ones(3)
    assert compare_with_halves(first, second, whole).difference == 1
    assert torch.allclose(add_gradients(first, second)["0"].float(), first["0"] + second["0"], atol=1e-5)


def test_a_parameter_that_only_one_has_and_numbers_that_are_none_are_told():
    ones = torch.ones(2)
    assert compare_gradients({"a": ones, "b": ones}, {"a": ones, "b": None}).parameter == "b"
    broken = compare_gradients({"a": ones, "b": ones * float("nan")}, {"a": ones, "b": ones})
    assert broken.difference != broken.difference
    assert broken.parameter == "b"
