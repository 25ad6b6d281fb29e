# SPDX-License-Identifier: Apache-2.0
"""However long a run is, its curve loses no extreme, no NaN and no value's place."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from truestep.core.charts.curve import NUM_BINS, ChartCurve

VALUES = st.floats(allow_nan=True, allow_infinity=True)
GAPS = st.integers(0, 5000)


def filled(steps, values, chunk):
    curve = ChartCurve(first_step=steps[0])
    for start in range(0, len(steps), chunk):
        curve.add(np.array(steps[start : start + chunk]), np.array(values[start : start + chunk]))
    return curve


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(GAPS, VALUES), min_size=1, max_size=100),
    st.integers(1, 20),
    st.integers(0, 10**9),
    st.integers(1, 400),
)
def test_a_curve_keeps_counts_extremes_and_every_values_range(rows, times, first, chunk):
    rows = rows * times
    steps = list(np.cumsum([gap for gap, _ in rows]) + first)
    values = [value for _, value in rows]
    curve = filled(steps, values, chunk)
    finite = [value for value in values if math.isfinite(value)]
    points = curve.points()

    assert curve.num_values == len(values) == sum(point.num_values for point in points)
    assert curve.num_nan == sum(map(math.isnan, values))
    assert curve.num_infinite == sum(map(math.isinf, values))
    assert (curve.lowest.value if curve.lowest else None) == min(finite, default=None)
    assert (curve.highest.value if curve.highest else None) == max(finite, default=None)
    for extreme in filter(
        None, (curve.lowest, curve.highest)
    ):  # of equals the first, as checkpoints are kept
        assert extreme.step == next(
            step for step, value in zip(steps, values, strict=True) if value == extreme.value
        )
    assert len(points) <= NUM_BINS
    assert [point.step for point in points] == sorted(point.step for point in points)
    assert min((point.low for point in points if point.is_finite), default=None) == min(finite, default=None)
    assert max((point.high for point in points if point.is_finite), default=None) == max(finite, default=None)
    assert all(point.low <= point.mean <= point.high for point in points if point.is_finite)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(GAPS, VALUES), min_size=2, max_size=100), st.integers(1, 20), st.integers(1, 50))
def test_how_the_lines_arrive_does_not_matter(rows, times, chunk):
    rows = rows * times
    steps = list(np.cumsum([gap for gap, _ in rows]))
    values = [value for _, value in rows]
    one, many = filled(steps, values, len(steps)), filled(steps, values, chunk)
    for a, b in zip(one.points(), many.points(), strict=True):
        assert (a.step, a.num_values, a.num_nan) == (b.step, b.num_values, b.num_nan)
        assert not a.is_finite or (a.low, a.high) == (b.low, b.high)


def test_few_values_far_apart_are_drawn_one_by_one():
    curve = filled([10, 1_000_000, 1_000_010], [1.0, 2.0, 3.0], 10)
    assert [(point.step, point.mean) for point in curve.points()] == [
        (10, 1.0),
        (1_000_000, 2.0),
        (1_000_010, 3.0),
    ]
    assert curve.values_per_point == 1


def test_a_short_run_is_drawn_as_it_was():
    curve = filled([3, 4, 6], [1.0, math.nan, 2.0], 10)
    assert [(point.step, point.num_nan) for point in curve.points()] == [(3, 0), (4, 1), (6, 0)]
    assert [point.mean for point in curve.points() if point.is_finite] == [1.0, 2.0]


def test_one_spike_among_three_million_values_is_kept_with_its_step():
    steps = np.arange(3_000_000)
    values = np.ones(3_000_000)
    values[1_234_567] = 50.0
    curve = ChartCurve(first_step=0)
    for start in range(0, 3_000_000, 500_000):
        curve.add(steps[start : start + 500_000], values[start : start + 500_000])
    assert (curve.highest.value, curve.highest.step) == (50.0, 1_234_567)
    assert sum(point.high == 50.0 for point in curve.points()) == 1


def test_steps_before_the_first_are_put_there():
    curve = filled([5, 2], [1.0, 2.0], 1)
    assert [(point.step, point.mean) for point in curve.points()] == [(2, 2.0), (5, 1.0)]
    curve.add(np.full(NUM_BINS, 1), np.full(NUM_BINS, 7.0))
    assert [(point.low, point.high) for point in curve.points()] == [(1.0, 7.0)]
