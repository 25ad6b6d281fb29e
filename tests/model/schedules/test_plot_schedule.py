# SPDX-License-Identifier: Apache-2.0
"""Plots of schedules: every value is what a training would use, nothing is used up, lengths that do not fit are said."""

import csv
import io
import json
import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest
import torch
from rich.console import Console
from torch import nn
from torch.optim import SGD, AdamW, lr_scheduler

import truestep as ts


def training_rates(make, optimizer, steps, every=1):
    """The rates of a loop by hand, the expected values."""
    schedule, used = make(optimizer), []
    for step in range(1, steps + 1):
        used.append([group["lr"] for group in optimizer.param_groups])
        optimizer.step()
        if step % every == 0:
            schedule.step()
    return [list(column) for column in zip(*used, strict=True)]


SCHEDULES = {
    "cosine": lambda o: ts.warmup_cosine(o, warmup_steps=5, total_steps=40),
    "step": lambda o: lr_scheduler.StepLR(o, step_size=7, gamma=0.1),
    "multi-step": lambda o: lr_scheduler.MultiStepLR(o, milestones=[3, 20], gamma=0.5),
    "exponential": lambda o: lr_scheduler.ExponentialLR(o, gamma=0.9),
    "one cycle": lambda o: lr_scheduler.OneCycleLR(o, max_lr=0.3, total_steps=60),
    "cyclic": lambda o: lr_scheduler.CyclicLR(
        o, base_lr=0.01, max_lr=0.1, step_size_up=6, cycle_momentum=False
    ),
    "restarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, T_0=5, T_mult=2),
    "sequence": lambda o: lr_scheduler.SequentialLR(
        o,
        [lr_scheduler.LinearLR(o, 0.1, total_iters=4), lr_scheduler.CosineAnnealingLR(o, T_max=30)],
        milestones=[4],
    ),
    "chained": lambda o: lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(o, total_iters=4), lr_scheduler.ExponentialLR(o, gamma=0.95)]
    ),
    "by hand": lambda o: lr_scheduler.LambdaLR(
        o, [lambda step: 1 / (1 + step), lambda step: 2.0][: len(o.param_groups)]
    ),
    "per epoch": ts.per_epoch(lambda o: lr_scheduler.StepLR(o, step_size=2)),
}


def two_groups():
    weights = [nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(3))]
    return SGD([{"params": weights[:1]}, {"params": weights[1:], "lr": 0.01}], lr=0.1, momentum=0.8)


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.filterwarnings("ignore:.*epoch parameter:UserWarning")
def test_every_value_is_what_a_training_uses(name):
    make, every = SCHEDULES[name], 8 if name == "per epoch" else 1
    expected = training_rates(make, two_groups(), 50, every)
    plot = ts.plot_schedule(make, 50, optimizer=two_groups(), steps_per_epoch=8)
    assert [list(curve.values) for curve in plot.of("learning rate")] == expected


def test_nothing_of_the_users_moves():
    optimizer = AdamW([nn.Parameter(torch.ones(2))], lr=0.3)
    own = lr_scheduler.StepLR(optimizer, step_size=1)
    before, state, random = str(optimizer.state_dict()), own.state_dict(), torch.get_rng_state()
    ts.plot_schedule(SCHEDULES["cosine"], 30, optimizer=optimizer)
    assert str(optimizer.state_dict()) == before
    assert own.state_dict() == state
    assert torch.equal(torch.get_rng_state(), random)


def test_a_scheduled_optimizer_is_plotted_from_its_first_rate():
    optimizer = SGD([nn.Parameter(torch.ones(2))], lr=0.3)
    SCHEDULES["cosine"](optimizer)  # it has set the first rate of the warm-up
    assert ts.plot_schedule(SCHEDULES["cosine"], 30, optimizer=optimizer).curves[0].landmarks.peak == 0.3


def test_what_moves_beside_the_rate_is_drawn():
    make = lambda o: lr_scheduler.OneCycleLR(o, max_lr=0.1, total_steps=20)
    assert ts.plot_schedule(make, 20).quantities == ("learning rate", "momentum")
    adam = AdamW([nn.Parameter(torch.ones(1))])
    momentum = ts.plot_schedule(make, 20, optimizer=adam).of("momentum")[0]
    assert min(momentum.values) == pytest.approx(0.85)
    assert ts.plot_schedule(SCHEDULES["cosine"], 20).quantities == ("learning rate",)


def test_landmarks():
    marks = (
        ts.plot_schedule(lambda o: ts.warmup_cosine(o, warmup_steps=10, total_steps=60), 80)
        .curves[0]
        .landmarks
    )
    assert (marks.warmup_steps, marks.peak, marks.peak_step, marks.last, marks.constant_from_step) == (
        10,
        1.0,
        10,
        0.0,
        61,
    )
    falling = ts.plot_schedule(SCHEDULES["exponential"], 10).curves[0].landmarks
    assert (falling.warmup_steps, falling.peak_step, falling.constant_from_step) == (0, 1, 10)


@pytest.mark.parametrize(
    ("total", "steps", "said"),
    [
        (60, 80, "ends after 60 of 80 updates; the last 20"),
        (100, 80, "the schedule after 100"),
        (80, 80, None),
    ],
)
def test_a_schedule_that_is_shorter_or_longer_than_the_training(total, steps, said):
    plot = ts.plot_schedule(lambda o: ts.warmup_linear(o, warmup_steps=5, total_steps=total), steps)
    assert said in plot.notes[0] if said else plot.notes == ()


def test_a_schedule_that_raises_past_its_end():
    plot = ts.plot_schedule(lambda o: lr_scheduler.OneCycleLR(o, max_lr=1.0, total_steps=10), 30)
    assert "too short for 30 updates: it raises ValueError after 11 updates" in plot.notes[0]
    assert len(plot.curves[0].values) == 11


def test_plateau_needs_the_values_it_would_see():
    make = lambda o: ts.plateau(o, metric="loss", patience=2, factor=0.1)
    with pytest.raises(ts.OptionError, match="waits for a metric"):
        ts.plot_schedule(make, 10)
    flat = ts.plot_schedule(make, 10, metric=lambda step: 1.0).curves[0].values
    assert flat[0] == 1.0
    assert flat[-1] < 0.02


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (3, "no function that makes a schedule"),
        (lambda o: None, "returned a NoneType"),
        (lr_scheduler.StepLR(SGD([nn.Parameter(torch.ones(1))], lr=1.0), 3), "would use it up"),
        (lambda _: lr_scheduler.StepLR(SGD([nn.Parameter(torch.ones(1))], lr=1.0), 3), "another optimizer"),
        (ts.per_epoch(lambda o: lr_scheduler.StepLR(o, 3)), "steps_per_epoch"),
        ([], "no schedule to plot"),
    ],
)
def test_bad_schedules(bad, said):
    with pytest.raises(ts.OptionError, match=said):
        ts.plot_schedule(bad, 10)


@pytest.mark.parametrize(
    "options", [{"num_steps": 0}, {"num_steps": 2.5}, {"by": "hours"}, {"by": "epochs"}, {"optimizer": "sgd"}]
)
def test_bad_options(options):
    with pytest.raises(ts.OptionError):
        ts.plot_schedule(**({"schedule": SCHEDULES["cosine"], "num_steps": 10} | options))


@pytest.fixture
def several():
    chosen = {name: SCHEDULES[name] for name in ("cosine", "exponential", "one cycle")}
    return ts.plot_schedule(chosen, 1000, steps_per_epoch=100, by="epochs")


def test_json_csv_svg_and_axes_agree(several, tmp_path):
    document = json.loads(json.dumps(several.to_dict(), allow_nan=False))
    assert document["schema_version"] == 1
    rows = list(csv.reader(io.StringIO(several.to_csv())))
    assert [row[0] for row in rows[1:3]] == ["1", "2"]
    for column, curve in enumerate(several.curves, start=1):
        assert [float(row[column]) for row in rows[1:] if row[column]] == list(curve.values)
    picture = ET.fromstring(several.save(tmp_path / "plot.svg").read_text())
    words = [each.text for each in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert {"Learning rate", "epoch", "cosine", "exponential"} <= set(words)
    pytest.importorskip("matplotlib")
    lines = several.to_axes().get_lines()
    assert [list(line.get_ydata()) for line in lines] == [
        list(each.values) for each in several.of("learning rate")
    ]
    assert several.save(tmp_path / "plot.png").stat().st_size > 5000
    with pytest.raises(ts.OptionError, match="its name ends in"):
        several.save(tmp_path / "plot.jpeg")


SVG = "{http://www.w3.org/2000/svg}"


def marks_of(plot):
    """Return where each mark stands, as shares of the width and height, and its words."""
    rings = [
        each for each in ET.fromstring(plot.to_svg()).iter(f"{SVG}circle") if "mark" in each.get("class")
    ]
    places = [[float(ring.get(name).rstrip("%")) / 100 for name in ("cx", "cy")] for ring in rings]
    return [(*place, ring.find(f"{SVG}title").text) for place, ring in zip(places, rings, strict=True)]


def test_warm_up_peak_and_end_are_marked_on_the_curve():
    plot = ts.plot_schedule(lambda o: ts.warmup_cosine(o, warmup_steps=11, total_steps=81), 101)
    (peak_x, peak_y, peak), (end_x, end_y, end) = marks_of(plot)
    assert (peak_x, peak_y, peak) == (0.1, 0, "warm-up ends: peak 1")
    assert (end_x, end_y, end) == (pytest.approx(0.81), 1, "constant: 0")
    falling = marks_of(ts.plot_schedule(SCHEDULES["exponential"], 101))
    assert [(x, words.split(" ")[0]) for x, _, words in falling] == [(0, "peak"), (1, "last:")]


def test_words_of_marks_that_would_lie_on_others_are_left_to_titles():
    same = ts.plot_schedule(dict.fromkeys("ab", SCHEDULES["cosine"]), 100)
    assert len(marks_of(same)) == 4
    words = [each for each in ET.fromstring(same.to_svg()).iter(f"{SVG}text") if each.get("class") == "mark"]
    assert len(words) == 2


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_the_terminal_is_not_left(several, width, encoding):
    screen = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="replace")
    console = Console(file=screen, width=width, color_system=None)
    console.print(several)
    screen.seek(0)
    text = screen.read()
    assert max(map(len, text.splitlines())) <= width
    assert "cosine" in text
    assert ("*" in text.split("Momentum")[0]) == (encoding == "ascii")


def test_a_curve_without_gaps():
    """Neighbouring letters of a falling line touch: a steep curve is a line and no dust."""
    from truestep.core.charts.axes import value_axis
    from truestep.core.charts.terminal import _curve_dots

    values = [float(100 - index) for index in range(101)]
    dots = sorted(_curve_dots(values, value_axis(0, 100, may_be_log=False), 40, 40))
    assert all(abs(b[1] - a[1]) <= 1 and b[0] - a[0] <= 1 for a, b in pairwise(dots))
