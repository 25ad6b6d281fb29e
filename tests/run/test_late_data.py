# SPDX-License-Identifier: Apache-2.0
"""Data that is made in a loop is refused before anything is trained with it; made between two loops it is found again."""

import pytest
import torch
from torch import nn

import truestep as ts

ROWS = torch.arange(48.0).reshape(16, 3)


def begun(directory, **options):
    run = ts.Run(directory, device="cpu", progress=False, doctor=False, **options)
    return run, run.learner(nn.Linear(3, 1), lambda p: torch.optim.SGD(p, lr=1e-4))


def squares(net):
    return lambda rows: net(rows).square()[:, 0]


def measured(run, net):
    return net.evaluate(squares(net), run.data(ROWS, batch_size=4))


def in_the_epoch(run, net):
    for _ in run.epochs(2):
        train = run.data(ROWS, batch_size=4)
        for rows in run.batches(train):
            net.update(squares(net), rows)


def in_the_head_of_the_loop(run, net):
    for _ in run.epochs(2):
        for rows in run.batches(run.data(ROWS, batch_size=4)):
            net.update(squares(net), rows)


def in_a_function_called_behind_the_pass(run, net):
    train = run.data(ROWS, batch_size=4)
    for _ in run.epochs(2):
        for rows in run.batches(train):
            net.update(squares(net), rows)
        measured(run, net)


def in_the_body_of_a_pass(run, net):
    train = run.data(ROWS, batch_size=4)
    for _rows in run.batches(train):
        measured(run, net)


def in_a_step(run, net):
    for _ in run.steps(2):
        measured(run, net)


def behind_an_inner_loop_that_was_left(run, net):
    train = run.data(ROWS, batch_size=4)
    for _ in run.epochs(2):
        for _rows in run.batches(train):
            break
        measured(run, net)


FORMS = (
    in_the_epoch,
    in_the_head_of_the_loop,
    in_a_function_called_behind_the_pass,
    in_the_body_of_a_pass,
    in_a_step,
    behind_an_inner_loop_that_was_left,
)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_data_made_in_a_loop_is_refused_at_the_first_call(tmp_path, form):
    run, net = begun(tmp_path / "run")
    with (
        pytest.raises(
            ts.OptionError, match=r"at test_late_data\.py:\d+ inside a loop.*= run\.data\(\.\.\.\) once"
        ) as raised,
        run,
    ):
        form(run, net)
    assert ("Write train = run.data(...)" in str(raised.value)) == (form is in_the_epoch)
    assert run.epoch == 0
    if form in (in_the_epoch, in_the_head_of_the_loop):
        assert run.step == 0


def test_data_made_before_and_behind_a_loop_is_not_refused(tmp_path):
    run, net = begun(tmp_path / "run", quiet=True)
    with run:
        run.log(at_first=measured(run, net))
        train = run.data(ROWS, batch_size=4)
        for _ in run.epochs(2):
            for _rows in run.batches(train):
                break
            break
        run.log(between=measured(run, net))
        for _ in run.epochs(2):
            pass
        run.log(at_last=measured(run, net))
    run.log(afterwards=measured(run, net))


class Stopped(Exception):
    """Somebody stopped it."""


def two_loops(directory, *, stop_at=None, second=ROWS * 2, batch_size=4, **options):
    """Train on one data set and then on another, which is made when the first loop is over."""
    saving = ts.Saving(every_steps=1, background=False)
    run, net = begun(directory, quiet=True, saving=saving, **options)
    given = []

    def train(source, epochs):
        for _ in run.epochs(epochs):
            for rows in run.batches(source):
                given.append(rows.sum().item())
                net.update(squares(net), rows)
                if run.step == stop_at:
                    raise Stopped

    with run:
        train(run.data(ROWS, batch_size=4, shuffle=True), 2)
        rest = run.data(second, batch_size=batch_size, shuffle=True)
        train(rest, 4)
    return given, net.weight.detach().clone()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return two_loops(tmp_path_factory.mktemp("whole"))


@pytest.mark.sliced(3)
@pytest.mark.parametrize("stop_at", [3, 8, 9, 11, 15])
def test_a_run_whose_data_is_made_between_two_loops_is_resumed_exactly(tmp_path, whole, stop_at):
    with pytest.raises(Stopped):
        two_loops(tmp_path / "run", stop_at=stop_at)
    given, weight = two_loops(tmp_path / "run")
    assert given == whole[0][stop_at - 1 :]
    assert torch.equal(weight, whole[1])


def test_it_is_stopped_twice_and_the_checkpoints_in_between_keep_its_place(tmp_path, whole):
    for stop_at in (10, 13):
        with pytest.raises(Stopped):
            two_loops(tmp_path / "run", stop_at=stop_at)
    run, _ = begun(tmp_path / "run", quiet=True)  # comes no farther than the data that it can't begin without
    run.data(ROWS, batch_size=4, shuffle=True)
    with run:
        run.log(nothing=0.0)
    given, weight = two_loops(tmp_path / "run")
    assert given == whole[0][12:]
    assert torch.equal(weight, whole[1])


@pytest.mark.parametrize("changed", [{"second": ROWS * 3}, {"batch_size": 8}])
def test_late_data_that_was_changed_is_refused_where_it_is_made(tmp_path, changed):
    with pytest.raises(Stopped):
        two_loops(tmp_path / "run", stop_at=11)
    with pytest.raises(
        ts.DataError, match=r"(?s)The data of 'rest' is not what the run was saved with.*resume=\"edited\""
    ) as raised:
        two_loops(tmp_path / "run", **changed)
    assert "Two ways on" in str(raised.value)
    two_loops(tmp_path / "run", resume="edited", **changed)


def test_data_that_is_gone_is_called_what_the_user_called_it(tmp_path):
    run, _ = begun(tmp_path / "run", quiet=True, saving=ts.Saving(epoch_seconds=0))
    train = run.data(ROWS, batch_size=4)
    valid = run.data(ROWS, batch_size=8)
    with run:
        for _ in run.epochs(1):
            assert len(list(run.batches(train))) == len(valid) * 2
    run, _ = begun(tmp_path / "run", quiet=True)
    train = run.data(ROWS, batch_size=4)
    with pytest.raises(ts.DataError, match="saved with the data 'valid', which is not there now"):
        list(run.epochs(2))


def test_data_is_called_by_its_variable_or_by_its_line(tmp_path, capsys):
    run, _ = begun(tmp_path / "run")

    class Box:
        pass

    train = run.data(ROWS, batch_size=4)
    Box.valid = run.data(ROWS, batch_size=4)
    made: object = run.data(
        ROWS,
        batch_size=4,
    )
    many = [run.data(ROWS, batch_size=4) for _ in range(2)]
    train = run.data(ROWS, batch_size=4)
    labels = [stream.label for stream in run.cursor.streams.values()]
    assert labels[:3] == ["train", "valid", "made"]
    line = labels[3].removeprefix("test_late_data.py:")
    assert labels[4] == f"test_late_data.py:{line} (data_5)"
    assert labels[5] == f"test_late_data.py:{int(line) + 1}"
    assert {"loading of train", "loading of valid"} <= {choice.name for choice in run.choices()}
    assert {type(each) for each in (train, made, *many)} == {type(Box.valid)}
    run.close()


def test_a_learner_made_after_the_start_is_refused_as_no_resumed_run_would_find_it(tmp_path):
    run, _ = begun(tmp_path / "run", quiet=True)
    with run:
        for _ in run.epochs(1):
            with pytest.raises(ts.OptionError, match=r"run\.learner\(\.\.\.\) came after the run had begun"):
                run.learner(nn.Linear(3, 1), lambda p: torch.optim.SGD(p, lr=0.1))
