# SPDX-License-Identifier: Apache-2.0
"""What is tracked is saved with the run and found again as it was, or refused early and by name."""

import random

import numpy as np
import pytest
import torch
from torch import nn

import truestep as ts

ROWS = torch.randn(12, 3, generator=torch.Generator().manual_seed(0))


class Counter:
    def __init__(self, value=0):
        self.value = value

    def state_dict(self):
        return {"value": self.value}

    def load_state_dict(self, state):
        self.value = state["value"]


def train(
    directory, *, epochs=1, resume="auto", body=lambda run: None, top=lambda run: None, stop=None, **tracked
):
    with ts.Run(directory, resume=resume, progress=False, saving=ts.Saving(every_steps=1)) as run:
        net = run.learner(nn.Linear(3, 1), lambda p: torch.optim.SGD(p, lr=0.1), name="net")
        run.track(**tracked)
        data = run.data(ROWS, batch_size=4)
        for _ in run.epochs(epochs):
            top(run)
            for batch in run.batches(data):
                net.update(lambda rows: net(rows).squeeze(1).square(), batch)
                body(run)
                if run.step == stop:
                    run.save()
            if stop is not None:
                break
    return run


def test_generators_and_whatever_has_a_state_come_back_as_they_were(tmp_path, capsys):
    def tracked():
        return {
            "counter": Counter(),
            "teacher": nn.BatchNorm1d(3),
            "schedule": torch.optim.lr_scheduler.StepLR(torch.optim.SGD([torch.zeros(1)], lr=1.0), 2),
            "by_torch": torch.Generator().manual_seed(1),
            "by_numpy": np.random.default_rng(1),
            "by_old_numpy": np.random.RandomState(1),
            "by_python": random.Random(1),
        }

    def draw(kept):
        kept["counter"].value += 1
        kept["teacher"](ROWS)
        kept["schedule"].optimizer.step()
        kept["schedule"].step()
        return [
            float(torch.rand((), generator=kept["by_torch"])),
            kept["by_numpy"].random(),
            kept["by_old_numpy"].normal(),
            kept["by_python"].gauss(0, 1),
            kept["counter"].value,
            kept["teacher"].running_mean.tolist(),
            kept["schedule"].last_epoch,
        ]

    first = tracked()
    train(tmp_path, body=lambda run: draw(first), **first)
    expected = draw(first)
    assert (
        "every checkpoint also keeps what run.track was given: counter 1 B, teacher"
        in capsys.readouterr().err
    )
    again = tracked()
    train(tmp_path, **again)
    assert draw(again) == expected
    assert "counter 1 B, teacher" in capsys.readouterr().err
    run = train(tmp_path, epochs=2, **tracked())
    assert {choice.name for choice in run.choices()} >= {"tracked counter", "tracked teacher"}


def test_the_top_of_an_epoch_that_runs_again_changes_nothing_that_is_kept(tmp_path):
    def top(kept):
        def count(run):
            kept.value += 100
            run.state["seen"] = run.state.get("seen", 0) + 100

        return count

    def body(kept, die_at):
        def count(run):
            kept.value += 1
            run.state["seen"] += 1
            if run.step == die_at:
                raise KeyboardInterrupt

        return count

    whole, stopped, again = Counter(), Counter(), Counter()
    train(tmp_path / "whole", epochs=2, top=top(whole), body=body(whole, None), counter=whole)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "run", epochs=2, top=top(stopped), body=body(stopped, 5), counter=stopped)
    run = train(tmp_path / "run", epochs=2, top=top(again), body=body(again, None), counter=again)
    assert again.value == whole.value == run.state["seen"] == 206


@pytest.mark.parametrize(
    ("before", "now", "message"),
    [
        ({"a": Counter(1)}, {}, r"holds the state of 'a', which is not tracked now.*run\.track\(a=\.\.\.\)"),
        ({}, {"b": Counter(1)}, "'b' is tracked now and is not in the checkpoint, so it would start afresh"),
        (
            {"a": Counter(1)},
            {"ab": Counter(2)},
            "'a', which is not tracked now. There are: ab|Did you mean 'ab'",
        ),
    ],
)
def test_what_is_missing_or_new_is_refused_with_both_ways_out_and_taken_when_asked(
    tmp_path, before, now, message
):
    train(tmp_path / "run", **before)
    with pytest.raises(ts.CheckpointError, match=message) as refused:
        train(tmp_path / "run", epochs=2, **now)
    assert 'resume="anew") starts a new run beside it, in run-2; resume="edited"' in str(refused.value)
    run = train(tmp_path / "run", epochs=2, resume="edited", **now)
    assert run.step == 6


def test_a_module_of_another_shape_is_refused_before_anything_is_touched(tmp_path):
    kept = Counter(7)
    train(tmp_path, teacher=nn.Linear(3, 2), kept=kept)
    other, counter = nn.Linear(3, 4), Counter(1)
    with pytest.raises(
        ts.CheckpointError, match=r"tracked as 'teacher'(.|\n)*reshaped    weight \[2, 3\], expected \[4, 3\]"
    ):
        train(tmp_path, epochs=2, teacher=other, kept=counter)
    assert counter.value == 1


def test_an_object_that_does_not_take_its_state_back_is_named(tmp_path):
    class Stubborn(Counter):
        def load_state_dict(self, state):
            raise KeyError("other")

    train(tmp_path, envs=Counter(1))
    with pytest.raises(
        ts.CheckpointError, match=r"'envs' \(Stubborn\) did not take back the state.*KeyError: 'other'"
    ):
        train(tmp_path, epochs=2, envs=Stubborn(1))


class Holding(Counter):
    def __init__(self, state):
        self.state = state

    def state_dict(self):
        return self.state


@pytest.mark.parametrize(
    ("tracked", "message"),
    [
        (Holding({"a": [1, {2}]}), r"x\.state_dict\(\)\['a'\]\[1\] is a builtins\.set"),
        (Holding({"a": lambda: None}), r"x\.state_dict\(\)\['a'\] is a builtins\.function"),
        (Holding(np.array([None])), r"The array x\.state_dict\(\) holds python objects"),
    ],
)
def test_a_state_that_would_have_to_be_pickled_is_refused_when_it_is_tracked(tmp_path, tracked, message):
    run = ts.Run(tmp_path / "run", progress=False)
    with pytest.raises(ts.CheckpointError, match=message):
        run.track(x=tracked)


def test_what_can_not_be_tracked_is_refused_with_what_to_do(tmp_path):
    with ts.Run(tmp_path / "run", progress=False) as run:
        net = run.learner(nn.Linear(3, 1), lambda p: torch.optim.SGD(p, lr=0.1))
        with pytest.raises(ts.OptionError, match=r"was given a learner, which the run keeps anyway"):
            run.track(net=net)
        with pytest.raises(ts.OptionError, match=r"a source of batches, which the run keeps anyway"):
            run.track(data=run.data(ROWS, batch_size=4))
        with pytest.raises(
            ts.OptionError,
            match=r"a list, which has no state_dict\(\) and no load_state_dict\(\).*run\.state\['x'\]",
        ):
            run.track(x=[1])
        with pytest.raises(ts.OptionError, match="was given a class; make an object"):
            run.track(x=Counter)
        run.track(x=Counter())
        with pytest.raises(ts.OptionError, match=r"run\.track\(x=\.\.\.\) was called twice"):
            run.track(x=Counter())
        with pytest.raises(ts.OptionError, match="reserved for runs of several processes"):
            run.track(per_rank=True, y=Counter())
        run.log(value=1.0)
        with pytest.raises(ts.OptionError, match=r"run\.track\(y=\.\.\.\) came after the run had begun"):
            run.track(y=Counter())
