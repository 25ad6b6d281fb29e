# SPDX-License-Identifier: Apache-2.0
"""By epoch and by time a point lies where its line says: its epoch's stretch of the axis, and the seconds that had gone."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.html_page import Page

from truestep.report import render_report
from truestep.report.metrics import MetricsFile
from truestep.report.run_record import RunRecord, read_curves
from truestep.report.timeline import (
    MAX_KNOTS,
    TOLERANCE,
    elapsed_seconds_by_step,
    epoch_timeline,
    epochs_done_by_step,
    interpolate_knots,
)

LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=30)  # of epochs, in steps


def write(folder, rows):
    with MetricsFile(folder / "metrics.jsonl") as file:
        for step, epoch, seconds in rows:
            file.append(step=step, epoch=epoch, elapsed_seconds=seconds, values={"loss": 1.0})
    return read_curves(folder)


def steps_of(lengths, every):
    step = 0
    for epoch, length in enumerate(lengths):
        for last in range(length):
            step += 1
            if step % every == 0 or last == length - 1:
                yield step, epoch


@settings(max_examples=60, deadline=None)
@given(LENGTHS, st.integers(1, 15))
def test_a_step_lies_within_its_epoch_and_the_last_one_at_its_end(tmp_path_factory, lengths, every):
    rows = [(step, epoch, step * 0.5) for step, epoch in steps_of(lengths, every)]
    record = write(tmp_path_factory.mktemp("run"), rows)
    knots = epochs_done_by_step(record)
    ends = {epoch: step for step, epoch, _ in rows}
    for step, epoch, _ in rows:
        assert math.ceil(interpolate_knots(knots, step)) == epoch + 1
    for epoch, step in list(ends.items())[:-1]:
        assert interpolate_knots(knots, step) == epoch + 1
    assert knots == sorted(knots)


def test_epochs_of_one_length_need_two_knots(tmp_path):
    record = write(tmp_path, [(step, (step - 1) // 5, 1.0) for step in range(1, 50_001)])
    assert epochs_done_by_step(record) == [(0, 0), (50_000, 10_000)]


def test_the_last_epoch_is_as_long_as_the_one_before_until_it_is_longer():
    assert epochs_done_by_step(RunRecord(name="", first_step=1, epoch_ends={0: 10, 1: 13})) == [
        (0, 0),
        (20, 2),
    ]
    assert epochs_done_by_step(RunRecord(name="", first_step=1, epoch_ends={0: 10, 1: 25})) == [
        (0, 0),
        (10, 1),
        (25, 2),
    ]
    assert epochs_done_by_step(RunRecord(name="", first_step=101, epoch_ends={4: 110})) == [
        (100, 4),
        (110, 5),
    ]


def test_a_dotted_line_stands_where_an_epoch_begins_also_where_not_every_step_is_logged(tmp_path):
    rows = [(step, epoch, 1.0) for step, epoch in steps_of([22] * 4, every=10)]
    assert write(tmp_path, rows).epoch_starts == [10, 23, 45, 67]


def test_epochs_without_number_make_no_large_page():
    ends, step = {}, 0
    for epoch in range(50_000):
        step += 2 + epoch % 3
        ends[epoch] = step
    knots = epochs_done_by_step(RunRecord(name="", first_step=1, epoch_ends=ends))
    assert len(knots) <= MAX_KNOTS + 1
    assert interpolate_knots(knots, step) == 50_000
    assert interpolate_knots(knots, ends[25_000]) == pytest.approx(25_001, abs=1)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 1e5, allow_subnormal=False), min_size=1, max_size=40))
def test_time_is_what_the_lines_say_and_never_falls(tmp_path_factory, seconds):
    rows = [(step, 0, each) for step, each in enumerate(sorted(seconds), 1)]
    knots = elapsed_seconds_by_step(write(tmp_path_factory.mktemp("run"), rows))
    for step, _, each in rows:
        assert interpolate_knots(knots, step) == pytest.approx(each, rel=1e-5, abs=max(seconds) * TOLERANCE)
    shaken = elapsed_seconds_by_step(
        write(
            tmp_path_factory.mktemp("run"),
            [(row[0], 0, each) for row, each in zip(rows, seconds, strict=True)],
        )
    )
    assert [value for _, value in shaken] == sorted(value for _, value in shaken)
    assert [step for step, _ in shaken] == sorted({step for step, _ in shaken})


def test_a_long_runs_time_is_read_off_within_one_of_its_points(tmp_path):
    record = write(tmp_path, [(step, 0, step**1.5) for step in range(1, 20_001)])
    knots = elapsed_seconds_by_step(record)
    assert len(knots) < 100
    for step in (1, 777, 10_000, 20_000):
        assert interpolate_knots(knots, step) == pytest.approx(step**1.5, abs=20_000**1.5 / 2_000)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 2**62), st.integers(0, 2**62), st.floats(allow_nan=False, allow_infinity=False)
        ),
        max_size=12,
    )
)
def test_any_steps_epochs_and_times_make_a_page(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("run")
    write(folder, rows)
    Page(render_report(folder))


def axes(page):
    return next(each for each in page.data if "axes" in each)["axes"]


def test_an_axis_is_offered_where_it_tells_something(tmp_path):
    folders = [tmp_path / name for name in ("one", "still", "both")]
    rows = ([(1, 0, 1.0), (2, 0, 2.0)], [(1, 0, 1.0), (2, 1, 1.0)], [(1, 0, 5.0), (2, 1, 400.0)])
    for folder, each in zip(folders, rows, strict=True):
        folder.mkdir()
        write(folder, each)
    assert [sorted(axes(Page(render_report(folder)))) for folder in folders] == [
        ["time"],
        ["epoch"],
        ["epoch", "time"],
    ]
    together = axes(Page(render_report(*folders)))
    assert together["time"]["unit"] == "min"
    assert together["time"]["x"] == [0, 400]
    assert together["epoch"]["x"] == [0, 2]


def test_without_lines_there_is_no_timeline():
    assert epoch_timeline([RunRecord(name="empty")]) is None
