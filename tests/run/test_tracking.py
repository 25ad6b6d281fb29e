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
        "every checkpoint also keeps what run.track was given, as large as it is now: counter 1 B, teacher"
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

    def load_state_dict(self, state):
        self.state = state


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


class Failing(Counter):
    """Gives its state a few times."""

    def __init__(self, times):
        self.value, self.times = 1, times

    def state_dict(self):
        self.times -= 1
        if self.times < 0:
            raise ValueError("no state today")
        return {"value": self.value}


@pytest.mark.parametrize("times", range(5))
def test_a_state_that_can_not_be_taken_is_the_users_exception_with_a_name(tmp_path, times):
    with pytest.raises(ValueError, match="no state today") as raised:
        train(tmp_path, epochs=2, envs=Failing(times))
    assert any("run.track was given as 'envs'" in note for note in raised.value.__notes__)
    run = train(tmp_path, epochs=2, envs=Counter(1))
    assert run.step == 6


STATES = {
    "nested tuples": {"a": (1, (2, (torch.ones(2), (np.arange(3), None))))},
    "arrays": {
        "a": np.arange(6).reshape(2, 3).T,
        "b": np.float32(3),
        "c": np.array("2020-01-01", dtype="M8[D]"),
    },
    "records": {"a": np.zeros(2, dtype=[("x", "i4"), ("y", "f8")]), "b": np.empty((0, 3))},
    "a tuple": (1, 2, torch.ones(1)),
    "a tensor": torch.arange(4),
    "nothing": None,
    "odd tensors": {
        "a": torch.ones(2, dtype=torch.complex64).conj(),
        "b": torch.ones(1).expand(5),
        "c": torch.tensor(True),
    },
    "small floats": {"a": torch.ones(3, dtype=torch.bfloat16), "b": torch.ones(2).to(torch.float8_e4m3fn)},
    "odd values": {"a": float("nan"), "b": 10**100, "c": "\udc80", 1: {(1, "a"): None}},
}


@pytest.mark.parametrize("state", STATES)
def test_odd_states_under_odd_names_and_the_same_object_twice_come_back(tmp_path, state):
    names = ("a/b", "..", "é ñ", "CON", "a" * 300)
    saved = Holding(STATES[state])
    train(tmp_path, **dict.fromkeys(names, saved))
    again = {name: Holding(STATES[state]) for name in names}
    train(tmp_path, epochs=2, **again)
    assert all(repr(holding.state) == repr(saved.state) for holding in again.values())


@pytest.mark.parametrize("name", ["", "a\x1b[31m", "a\nb", "a\udc80"])
def test_a_name_that_can_not_be_shown_is_refused(tmp_path, name):
    with ts.Run(tmp_path, progress=False) as run, pytest.raises(ts.OptionError, match="no control codes"):
        run.track(**{name: Counter()})


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
        run.log(value=1.0)
        with pytest.raises(ts.OptionError, match=r"run\.track\(y=\.\.\.\) came after the run had begun"):
            run.track(y=Counter())


def test_what_is_tracked_per_rank_comes_back_on_one_process_and_stays_so(tmp_path):
    def draws(epochs, *, per_rank=True):
        with ts.Run(tmp_path / "run", progress=False) as run:
            draw = torch.Generator().manual_seed(4)
            run.track(per_rank=per_rank, draw=draw)
            return [torch.rand(1, generator=draw).item() for _ in run.steps(epochs)]

    whole = torch.Generator().manual_seed(4)
    expected = [torch.rand(1, generator=whole).item() for _ in range(5)]
    assert draws(3) + draws(5) == expected
    with pytest.raises(
        ts.CheckpointError,
        match=r"'draw' in the checkpoint is one for each rank, .* now that it is one for all",
    ):
        draws(6, per_rank=False)


def test_strategies_are_checked_and_chosen_with_their_reason(tmp_path):
    with pytest.raises(ts.OptionError, match=r"strategy='dpp'\) is unknown"):
        ts.Run(tmp_path / "x", strategy="dpp")
    for strategy in ("auto", "ddp", "single"):
        with ts.Run(tmp_path / strategy, strategy=strategy, progress=False) as run:
            (choice,) = [each for each in run.choices() if each.name == "strategy"]
            assert choice.value == "single"
            assert "alone" in choice.reason
