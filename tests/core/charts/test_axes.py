# SPDX-License-Identifier: Apache-2.0
"""Ticks lie on the axis, are few, rise, and no two are labelled alike."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from truestep.core.charts.axes import exact_linear_axis, value_axis

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


LONGEST = len("−1.23456e-112")
LONGEST_STEP = len("999.999999995G")  # an axis of steps ends where they do, whatever they are


def check(axis, longest=LONGEST):
    assert axis.low < axis.high
    assert list(axis.ticks) == sorted(set(axis.ticks))
    assert len(axis.ticks) <= 12
    margin = 1e-9 * (axis.high / 2 - axis.low / 2)
    assert all(axis.low - margin <= tick <= axis.high + margin for tick in axis.ticks)
    labels = axis.labels()
    assert len(set(labels)) == len(labels)
    assert max(map(len, labels), default=0) <= longest  # the chart makes room for its labels


@settings(max_examples=500)
@given(NUMBERS, NUMBERS, st.booleans())
@example(-1.7976226468767532e308, -1.7976226468767534e308, False)
@example(-1.2345e300, -1.23475e300, False)
def test_any_two_numbers_make_an_axis(one, other, may_be_log):
    low, high = sorted([one, other])
    axis = value_axis(low, high, may_be_log=may_be_log)
    check(axis)
    assert 0 <= axis.position(low) <= axis.position(high) <= 1


@given(st.integers(0, 10**12), st.integers(0, 10**12))
@example(99_999_999_980, 100_000_000_005)
@example(999_999_999_975, 10**12)
def test_any_two_steps_make_an_axis_of_whole_ticks(one, other):
    axis = exact_linear_axis(*sorted([one, other]))
    check(axis, LONGEST_STEP)
    assert all(tick == int(tick) for tick in axis.ticks)


AXES = [
    ((0.0, 1.0, True), ["0", "0.2", "0.4", "0.6", "0.8", "1"]),
    ((0.55, 0.99, False), ["0.5", "0.6", "0.7", "0.8", "0.9", "1"]),
    ((0.004, 2.3, True), ["0.01", "0.1", "1"]),
    ((0.0, 18_000.0, False), ["0", "5k", "10k", "15k", "20k"]),
    ((-3.0, 2.0, True), ["−3", "−2", "−1", "0", "1", "2"]),
    ((0.0, 2e-4, False), ["0", "5e-5", "1e-4", "1.5e-4", "2e-4"]),
    ((1e-7, 1e3, True), ["1e-7", "1e-5", "0.001", "0.1", "10", "1,000"]),
    ((0.981, 0.992, False), ["0.98", "0.9825", "0.985", "0.9875", "0.99", "0.9925"]),
]


@pytest.mark.parametrize(("given", "labels"), AXES, ids=str)
def test_ticks_are_round_numbers(given, labels):
    low, high, may_be_log = given
    assert value_axis(low, high, may_be_log=may_be_log).labels() == labels


@pytest.mark.parametrize("value", [0.0, 5.0, -5.0, 1e300, 5e-324])
def test_a_constant_has_an_axis_too(value):
    axis = value_axis(value, value, may_be_log=True)
    check(axis)
    assert 0 <= axis.position(value) < 1
