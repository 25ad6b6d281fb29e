# SPDX-License-Identifier: Apache-2.0
"""What moves without a batch is saved too: updates outside of every loop, after the last epoch, and `run.state`."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch import nn

import truestep as ts
from truestep.run.user_state import run_state_change_mark

ROWS = torch.arange(16.0).reshape(8, 2) / 16


def begun(directory):
    run = ts.Run(directory, seed=0, progress=False, quiet=True, doctor=False)
    net = run.learner(nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9))
    return run, net, lambda rows: net(rows).squeeze(1).square()


def weights(net):
    return [parameter.detach().clone() for parameter in net.parameters()]


def same(mine, theirs):
    return all(map(torch.equal, mine, theirs))


def test_updates_without_any_loop_go_on_at_each_start(tmp_path):
    counts = []
    for _ in range(3):
        run, net, loss = begun(tmp_path / "run")
        for _ in range(2):
            net.update(loss, ROWS)
        run.close()
        counts.append(net._parts.counters.updates)
    assert counts == [2, 4, 6]


def polished(directory):
    run, net, loss = begun(directory)
    data = run.data(ROWS, batch_size=4)
    for _ in run.epochs(2):
        for rows in run.batches(data):
            net.update(loss, rows)
    net.update(loss, ROWS)
    run.state["polished"] = torch.ones(2)
    run.close()
    return weights(net)


def test_what_follows_on_the_last_epoch_is_saved_by_close(tmp_path):
    ended = polished(tmp_path / "run")
    run, net, _ = begun(tmp_path / "run")
    run.data(ROWS, batch_size=4)
    assert list(run.epochs(2)) == []
    assert net._parts.counters.updates == 5
    assert same(weights(net), ended)
    assert run.state["polished"].equal(torch.ones(2))
    run.close()


@pytest.mark.parametrize("value", [1, "text", torch.arange(3), np.arange(3), [float("nan")]])
def test_a_state_that_is_set_after_the_last_epoch_is_saved_at_the_end_of_the_block(tmp_path, value):
    for expected in (None, value):
        run, net, loss = begun(tmp_path / "run")
        data = run.data(ROWS, batch_size=4)
        with run:
            for _ in run.epochs(1):
                for rows in run.batches(data):
                    net.update(loss, rows)
            found = run.state.get("kept")
            assert str(found) == str(expected)
            run.state["kept"] = value


def test_a_finished_run_that_nothing_moved_is_not_saved_again(tmp_path):
    for _ in range(3):
        run, net, loss = begun(tmp_path / "run")
        data = run.data(ROWS, batch_size=4)
        with run:
            for _ in run.epochs(1):
                run.state.update(tensor=torch.arange(3), array=np.arange(3), number=float("nan"))
                for rows in run.batches(data):
                    net.update(loss, rows)
    assert [path.name for path in sorted((tmp_path / "run" / "checkpoints").glob("0*"))] == ["000001-step-2"]


class Holder:
    """Has a state that a checkpoint can hold."""

    def __init__(self):
        self.state = {"tensor": torch.zeros(3), "array": np.zeros(2), "number": 1}

    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        self.state = state


def write(holder):
    holder.state["tensor"][1] = 7.0


def replace(holder):
    holder.state["tensor"] = torch.full((3,), 2.0)


def write_array(holder):
    holder.state["array"][0] = 3.0


def count(holder):
    holder.state["number"] += 1


@pytest.mark.parametrize("change", [write, replace, write_array, count])
@pytest.mark.parametrize("epochs", [1, 2])
def test_what_is_tracked_and_changes_after_the_last_epoch_is_saved_by_close(tmp_path, change, epochs):
    for start in range(3):
        run, net, loss = begun(tmp_path / "run")
        kept, teacher = Holder(), nn.Linear(2, 1)
        run.track(kept=kept, teacher=teacher)
        data = run.data(ROWS, batch_size=4)
        for _ in run.epochs(epochs):
            for rows in run.batches(data):
                net.update(loss, rows)
        if start == 0:
            change(kept)
            with torch.no_grad():
                teacher.weight.fill_(0.5)
            expected = str(kept.state)
        assert str(kept.state) == expected
        assert teacher.weight.eq(0.5).all()
        run.close()
    folders = sorted(path.name for path in (tmp_path / "run" / "checkpoints").glob("0*"))
    assert folders[-1] == f"000002-step-{2 * epochs}"  # and none of the later starts saved anything


def test_after_an_exception_in_a_body_close_saves_nothing_to_go_on_from(tmp_path):
    run, net, loss = begun(tmp_path / "run")
    data = run.data(ROWS, batch_size=4)

    def fails():
        with run:
            for rows in run.batches(data):
                net.update(loss, rows)
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    net.update(loss, ROWS)
    run.close()
    again, net, _ = begun(tmp_path / "run")
    again.data(ROWS, batch_size=4)
    next(again.epochs(1))
    assert again.step == 0
    assert net._parts.counters.updates == 0
    again.close()


def test_a_glance_sees_what_was_written_in_place_and_what_is_another_object():
    tensor, array = torch.zeros(2), np.zeros(2)
    state = {"tensor": tensor, "more": [array, {"text": "a"}]}
    before = run_state_change_mark(state)
    assert run_state_change_mark(state) == before
    tensor.add_(1)
    assert run_state_change_mark(state) != before
    before = run_state_change_mark(state)
    array[0] = 1
    assert run_state_change_mark(state) != before
    state["tensor"] = torch.ones(2)
    before = run_state_change_mark(state)
    state["tensor"] = torch.ones(2)
    assert run_state_change_mark(state) != before
    state["more"] = state
    assert run_state_change_mark(state) == run_state_change_mark(state)


def test_state_alone_is_saved_and_joins_what_was_there(tmp_path):
    for name in ("first", "second"):
        run, net, _ = begun(tmp_path / "run")
        with torch.no_grad():
            net.weight.fill_(len(name))
        run.state[name] = torch.ones(2)
        run.close()
        run.close()
    run, net, loss = begun(tmp_path / "run")
    net.evaluate(loss, [ROWS])
    assert sorted(run.state) == ["first", "second"]
    assert net.weight.eq(len("first")).all()  # a run that goes on begins with the weights that it had
    run.close()


def test_nothing_is_saved_of_a_run_that_holds_nothing_or_failed(tmp_path):
    run, _, _ = begun(tmp_path / "empty")
    run.close()
    run, _, _ = begun(tmp_path / "failed")
    run.state["seen"] = 3
    with pytest.raises(KeyError), run:
        raise KeyError
    run.close()
    for name in ("empty", "failed"):
        assert not list((tmp_path / name / "checkpoints").glob("*-step-*"))


def by_parts(net, loss):
    with net.accumulating() as update:
        update.backward(loss(ROWS))


def several(net, loss):
    for _ in range(3):
        net.update(loss, ROWS)


BEHIND = {
    "update": lambda net, loss, **_: net.update(loss, ROWS),
    "steps": lambda net, loss, **_: net.update(loss, ROWS),
    "block": lambda net, loss, **_: by_parts(net, loss),
    "function": lambda net, loss, **_: ts.update([net], loss, ROWS),
    "several": lambda net, loss, **_: several(net, loss),
    "pass": lambda net, loss, run, data: epochs_of(run, data, net, loss, passes=[0]),
    "guarded": lambda net, loss, run, **_: (
        "last" in run.state or run.state.update(last=bool(net.update(loss, ROWS)))
    ),
    "evaluated": lambda net, loss, data, **_: net.evaluate(loss, data),
    "between": lambda net, loss, run, data: (
        net.update(loss, ROWS),
        epochs_of(run, data, net, loss, run.epochs(4)),
    ),
    "goes on": lambda net, loss, run, data: epochs_of(run, data, net, loss, run.epochs(4)),
    "none": lambda **_: None,
}


LEFT = ("left", "in a pass", "returned")
BEHIND |= dict.fromkeys(LEFT, BEHIND["update"])


def epochs_of(run, data, net, loss, passes):
    for _ in passes:
        for rows in run.batches(data):
            net.update(loss, rows)


def epochs_left(run, data, net, loss, how):
    for epoch in run.epochs(4):
        for rows in run.batches(data):
            net.update(loss, rows)
            if how == "in a pass":
                break
        if how == "returned":
            return
        if epoch == 1:
            break


def behind(directory, habit):
    """Train, do something behind the loop in one of the ways in which people do, and count the updates."""
    run, net, loss = begun(directory)
    data = run.data(ROWS, batch_size=4)
    with run:
        if habit == "steps":
            for _ in run.steps(3):
                net.update(loss, ROWS)
        elif habit in LEFT:
            epochs_left(run, data, net, loss, habit)
        else:
            epochs_of(run, data, net, loss, run.epochs(2))
        BEHIND[habit](net=net, loss=loss, run=run, data=data)
    return net._parts.counters.updates


@pytest.mark.parametrize("habit", ["update", "steps", "block", "function", "several", "between", *LEFT])
def test_an_update_behind_the_loop_that_a_checkpoint_holds_is_not_made_again(tmp_path, habit):
    ended = behind(tmp_path, habit)
    for _ in range(2):
        with pytest.raises(
            ts.OptionError, match=r"net\.update stands behind run\.(epochs|steps)\(\d\), which has nothing"
        ):
            behind(tmp_path, habit)
    run, net, _ = begun(tmp_path)
    run.data(ROWS, batch_size=4)
    assert habit in LEFT or list(run.steps(3) if habit == "steps" else run.epochs(2)) == []
    assert habit in LEFT or net._parts.counters.updates == ended
    run.close()


@pytest.mark.parametrize("habit", ["none", "pass", "guarded", "evaluated", "goes on"])
def test_what_stands_behind_a_loop_and_is_not_made_again_is_left_alone(tmp_path, habit):
    assert len({behind(tmp_path, habit) for _ in range(3)}) == 1


def test_an_update_behind_a_loop_that_trained_on_is_made(tmp_path):
    ended = weights(polished_after(tmp_path, 2))
    assert not same(ended, weights(polished_after(tmp_path, 4)))


def polished_after(directory, epochs):
    run, net, loss = begun(directory)
    data = run.data(ROWS, batch_size=4)
    with run:
        epochs_of(run, data, net, loss, run.epochs(epochs))
        net.update(loss, ROWS)
    return net


@pytest.mark.parametrize("habit", ["block", "none", "before", "within"])
def test_an_update_that_nothing_saves_is_told(tmp_path, capfd, habit):
    run = ts.Run(tmp_path, seed=0, progress=False, doctor=False)
    net = run.learner(nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.1))
    loss, data = lambda rows: net(rows).squeeze(1).square(), run.data(ROWS, batch_size=4)
    with run if habit == "block" else nullcontext():
        if habit == "before":
            net.update(loss, ROWS)
        epochs_of(run, data, net, loss, run.epochs(2))
        if habit in ("block", "none"):
            net.update(loss, ROWS)
    run.close()
    told = "net.update stands behind run.epochs(2), at whose end the run was saved" in capfd.readouterr().err
    assert told is (habit == "none")
