# SPDX-License-Identifier: Apache-2.0
"""Early stopping counts as the definition says, and goes on counting after a restart."""

import math
import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import truestep as ts

VALUES = st.lists(
    st.one_of(st.floats(-10, 10), st.sampled_from([math.nan, math.inf, -math.inf])), max_size=30
)


def stops_at(values, *, patience, mode, min_delta):
    """Return where the training ends, by the definition: `patience` values since the last that beat all before it."""
    signed = [-value if mode == "max" else value for value in values]
    best, since = None, 0
    for place, value in enumerate(signed):
        better = not math.isnan(value) and (best is None or best - value > min_delta)
        best, since = (value, 0) if better else (best, since + 1)
        if since == patience:
            return place
    return None


@pytest.mark.filterwarnings("ignore:ts.EarlyStopping")
@given(
    VALUES,
    st.integers(1, 4),
    st.sampled_from(["min", "max"]),
    st.sampled_from([0.0, 0.5]),
    st.integers(0, 30),
)
def test_it_ends_where_the_definition_says_also_after_a_restart(values, patience, mode, min_delta, restart):
    def make():
        return ts.EarlyStopping(patience=patience, mode=mode, min_delta=min_delta)

    expected = stops_at(values, patience=patience, mode=mode, min_delta=min_delta)
    early, found = make(), None
    for place, value in enumerate(values):
        if place == restart:
            state, early = early.state_dict(), make()
            early.load_state_dict(state)
        if early.step(value):
            found = place
            break
    assert found == expected


LOSSES = {
    "falls": [0.9, 0.7, 0.6, 0.5, 0.45, 0.4, 0.38],
    "falls with noise": [0.9, 0.7, 0.72, 0.5, 0.4, 0.45, 0.3],
    "falls below zero": [0.5, 0.1, -0.3, -0.7, -1.0, -1.2, -1.3],
}


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("patience", [2, 3, 4, 6])
@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("values", LOSSES.values(), ids=LOSSES)
def test_a_number_that_moves_the_other_way_throughout_is_told_once(values, mode, patience, restarts):
    if patience == 2 and values[2] > values[1]:
        return  # one value of two tells nothing
    options = {"patience": patience, "mode": mode}
    early = ts.EarlyStopping(**options)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for value in values if mode == "max" else [-value for value in values]:
            if early.step(value):
                break
            if restarts:
                state, early = early.state_dict(), ts.EarlyStopping(**options)
                early.load_state_dict(state)
    (line,) = told
    other, way = ("min", "falls") if mode == "max" else ("max", "rises")
    assert f"number {way}, from" in str(line.message)
    assert f"write mode='{other}'" in str(line.message)
    assert line.filename == __file__


@pytest.mark.parametrize("patience", [1, 2, 3, 5])
@pytest.mark.parametrize(
    "values",
    [
        [0.9, 0.8, 0.85, 0.9, 0.95, 1.0, 1.1],  # it was better once
        [0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9],
        [0.9, 1.2, 0.95, 1.1, 1.0, 0.97, 1.15],  # no way at all
        [0.9, math.nan, math.nan, math.nan, math.nan, math.nan, math.nan],
    ],
)
def test_a_number_without_a_way_or_with_a_better_value_is_told_nothing(values, patience):
    early = ts.EarlyStopping(patience=patience, mode="min")
    for value in values:
        if early.step(value):
            break


@pytest.mark.parametrize("value", [0.5, torch.tensor(0.5), torch.tensor([0.5]), "0.5"])
def test_what_is_one_number_is_taken(value):
    early = ts.EarlyStopping(patience=1, mode="min")
    assert not early.step(value)
    assert early.best == 0.5
    assert early.step(value)


@pytest.mark.parametrize("value", [torch.ones(2), None, {"loss": 0.5}, "low"])
def test_what_is_no_number_is_refused(value):
    with pytest.raises(ts.OptionError, match=r"one number.*early\.step\(valid_loss\)"):
        ts.EarlyStopping(patience=1, mode="min").step(value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"patience": 0, "mode": "min"}, "at least 1"),
        ({"patience": 2.5, "mode": "min"}, "whole number"),
        ({"patience": 2, "mode": "auto"}, "mode"),
        ({"patience": 2, "mode": "max", "min_delta": -1.0}, "at least 0"),
    ],
)
def test_options_that_mean_nothing_are_refused(options, message):
    with pytest.raises(ts.OptionError, match=message):
        ts.EarlyStopping(**options)


def trained(directory, *, stop_after):
    """Train until the count ends it, or leave in the middle of an epoch; return the epochs that it had."""
    run = ts.Run(directory, seed=0, quiet=True, progress=False, saving=ts.Saving(every_steps=1))
    net = run.learner(nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.0))
    data = run.data(torch.ones(8, 2), batch_size=4)
    early = ts.EarlyStopping(patience=3, mode="min")
    run.track(early=early)
    done = []
    for epoch in run.epochs(20):
        for rows in run.batches(data):
            net.update(lambda rows: net(rows).squeeze(1).square(), rows)
            if run.step == stop_after:
                raise KeyboardInterrupt
        done.append(epoch)
        if early.step(1.0):
            run.finish()
    run.close()
    return done


def test_a_run_that_was_interrupted_counts_on(tmp_path):
    whole = trained(tmp_path / "whole", stop_after=None)
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "cut", stop_after=5)
    assert whole == [0, 1, 2, 3]
    assert trained(tmp_path / "cut", stop_after=None)[-1] == 3


def test_a_stop_that_nothing_follows_is_told_once():
    early = ts.EarlyStopping(patience=1, mode="min")
    assert not early.step(1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert early.step(1.0)
    with pytest.warns(UserWarning, match=r"has said to stop and is given the next value.*run\.finish\(\)"):
        assert early.step(1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert early.step(1.0)
        assert not early.step(0.5)


def ends_early(tmp_path, decide):
    """Train with a loop that `decide(early, run)` may leave; its return value is whether to break."""
    run = ts.Run(tmp_path, seed=0, progress=False, doctor=False)
    net = run.learner(nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.0))
    data = run.data(torch.ones(8, 2), batch_size=4)
    early = ts.EarlyStopping(patience=1, mode="min")
    run.track(early=early)
    for _ in run.epochs(4):
        for rows in run.batches(data):
            net.update(lambda rows: net(rows).squeeze(1).square(), rows)
        if decide(early, run):
            break
    run.close()


@pytest.mark.parametrize(
    ("decide", "is_told"),
    [
        (lambda early, run: early.step, True),
        (lambda early, run: bool(early.step) and run.finish(), True),
        (lambda early, run: early.step(1.0), False),
        (lambda early, run: early.step(1.0) and run.finish(), False),
        (lambda early, run: False, False),
    ],
    ids=["broken off", "finished", "asked and broken off", "asked and finished", "gone through"],
)
def test_a_loop_that_a_method_has_ended_says_so(tmp_path, capsys, decide, is_told):
    ends_early(tmp_path, decide)
    assert ("if early.step(valid_loss): run.finish()" in capsys.readouterr().err) == is_told


def test_what_stands_below_the_loop_is_done_where_it_failed_behind_finish(tmp_path):
    """A save of the step that ended the run was gone on from, and the code below the inner loop was never run."""

    def train(*, fails):
        saving = ts.Saving(every_steps=1, background=False)
        with ts.Run(tmp_path / "run", seed=0, quiet=True, progress=False, saving=saving) as run:
            net = run.learner(nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.1))
            data = run.data(torch.ones(8, 2), batch_size=2)
            for _ in run.epochs(2):
                for batch in run.batches(data):
                    net.update(lambda rows: net(rows).squeeze(1).square(), batch)
                    if run.step == 2:
                        run.finish()
                if fails:
                    raise RuntimeError("below the inner loop")
                run.log(below=1.0)
        return run.step, "below" in (tmp_path / "run" / "metrics.jsonl").read_text("utf-8")

    with pytest.raises(RuntimeError, match="below the inner loop"):
        train(fails=True)
    assert train(fails=False) == (2, True)
    assert train(fails=False) == (2, True)
