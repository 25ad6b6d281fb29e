# SPDX-License-Identifier: Apache-2.0
"""Trainings without a data set, and passes of so many batches: counted, saved and resumed exactly."""

import itertools
import os
import random
import signal

import pytest
import torch
from torch import nn

import truestep as ts


def by_steps(directory, total=6, stop=None, **options):
    """Draw, in and out of the loop and in the loss; return the steps done, the weights, and the logged lines."""
    with ts.Run(directory, seed=1, progress=False, saving=ts.Saving(every_steps=2), **options) as run:
        net = run.learner(
            nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 1)),
            lambda p: torch.optim.SGD(p, lr=0.1),
        )
        run.log(start=random.random())
        torch.randn(5)
        steps = []
        for step in run.steps(total):
            rows = torch.randn(4, 3) + random.random()
            net.update(lambda rows: net(rows).squeeze(1).square(), rows)
            steps.append(step)
            run.log(drawn=random.random())
            if step == stop:
                os.kill(os.getpid(), signal.SIGTERM)
    lines = [line.split('"values"')[1] for line in (directory / "metrics.jsonl").read_text().splitlines()]
    return steps, torch.cat([p.detach().flatten() for p in net.parameters()]), lines


def test_steps_are_numbers_from_0_that_the_run_counts(tmp_path):
    with ts.Run(tmp_path, progress=False) as run:
        assert [(step, run.step) for step in run.steps(4)] == [(0, 1), (1, 2), (2, 3), (3, 4)]


@pytest.mark.sliced(3)
@pytest.mark.parametrize("stop", range(5))
def test_steps_that_were_stopped_anywhere_end_with_the_same_bits_and_lines(tmp_path, stop):
    steps, weights, lines = by_steps(tmp_path / "whole")
    with pytest.raises(SystemExit):
        by_steps(tmp_path / "stopped", stop=stop)
    rest, again, lines_again = by_steps(tmp_path / "stopped")
    assert rest == steps[stop + 1 :]
    assert torch.equal(weights, again)
    assert [line for line in lines if "samples" not in line] == [
        line for line in lines_again if "samples" not in line
    ]


def test_more_steps_go_on_where_the_run_ended_in_one_process_and_in_another(tmp_path, capsys):
    _, expected, _ = by_steps(tmp_path / "whole", total=7)
    by_steps(tmp_path / "longer", total=4)
    capsys.readouterr()
    assert by_steps(tmp_path / "longer", total=4)[0] == []
    assert "all 4 steps are done already; nothing is left to train" in capsys.readouterr().err
    steps, weights, _ = by_steps(tmp_path / "longer", total=7)
    assert steps == [4, 5, 6]
    assert torch.equal(expected, weights)
    with ts.Run(tmp_path / "one", progress=False) as run:
        assert [*run.steps(2), *run.steps(5)] == [0, 1, 2, 3, 4]


def test_a_break_leaves_the_step_done(tmp_path):
    with ts.Run(tmp_path, progress=False) as run:
        for step in run.steps(5):
            if step == 2:
                break
    with ts.Run(tmp_path, progress=False) as run:
        assert list(run.steps(5)) == [3, 4]


def test_data_read_within_a_step_is_read_from_where_the_step_begins(tmp_path):
    def go(directory, stop=None):
        seen = []
        with ts.Run(directory, progress=False, saving=ts.Saving(every_steps=1)) as run:
            data = run.data(torch.arange(6), batch_size=2, shuffle=True)
            for step in run.steps(4):
                seen += [(step, *batch.tolist()) for batch in run.batches(data, limit=2)]
                if step == stop:
                    os.kill(os.getpid(), signal.SIGTERM)
        return seen

    whole = go(tmp_path / "whole")
    with pytest.raises(SystemExit):
        go(tmp_path / "run", stop=1)
    assert go(tmp_path / "run") == [each for each in whole if each[0] > 1]


@pytest.mark.parametrize("count", [-1, 2.5, "10", None, True])
def test_a_count_that_is_none_is_refused(tmp_path, count):
    with ts.Run(tmp_path, progress=False) as run:
        data = run.data(torch.arange(6), batch_size=2)
        with pytest.raises(ts.OptionError, match="give a whole number of at least 0"):
            run.steps(count)
        if count is not None:
            with pytest.raises(ts.OptionError, match="give a whole number of at least 1"):
                run.batches(data, limit=count)


def test_steps_within_epochs_are_refused(tmp_path):
    with ts.Run(tmp_path, progress=False) as run:
        epochs = run.epochs(2)
        next(epochs)
        with pytest.raises(ts.OptionError, match="outermost loop"):
            list(run.steps(3))


class Endless(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(itertools.count())


class Counted(Endless):
    reads = 0

    def __iter__(self):
        for number in itertools.count():
            Counted.reads += 1
            yield number


DATA = {
    "map-style": lambda run: run.data(torch.arange(10), batch_size=2, shuffle=True),
    "endless": lambda run: run.data(Endless(), batch_size=2),
    "short stream": lambda run: run.data(lambda: iter(range(6)), batch_size=2),
}


def limited(directory, kind, limit, stop=None):
    seen = []
    with ts.Run(directory, progress=False, saving=ts.Saving(every_steps=1)) as run:
        data = DATA[kind](run)
        for epoch in run.epochs(4):
            for batch in run.batches(data, limit=limit):
                seen.append((epoch, *batch.tolist()))
                if run.step == stop:
                    os.kill(os.getpid(), signal.SIGTERM)
    return seen


@pytest.mark.sliced(4)
@pytest.mark.parametrize(
    ("kind", "limit"),  # a pass of seven is longer than what there is, which the endless one is not
    [(kind, limit) for kind in DATA for limit in (1, 3, 7) if (kind, limit) != ("endless", 7)],
)
def test_a_pass_has_just_so_many_batches_and_the_next_goes_on_where_it_ended(tmp_path, kind, limit):
    whole = limited(tmp_path / "whole", kind, limit)
    assert [epoch for epoch, *_ in whole] == [epoch for epoch in range(4) for _ in range(limit)]
    samples = [sample for _, *batch in whole for sample in batch]
    size = {"map-style": 10, "endless": len(samples), "short stream": 6}[kind]
    for start in range(0, len(samples) - size + 1, size):
        assert sorted(samples[start : start + size]) == list(
            range(size)
        )  # all have come before one comes again
    for stop in range(1, 4 * limit, max(1, limit - 1)):
        with pytest.raises(SystemExit):
            limited(tmp_path / f"{stop}", kind, limit, stop)
        assert limited(tmp_path / f"{stop}", kind, limit) == whole[stop:]


def test_an_endless_stream_is_read_once_and_not_from_its_front_for_each_pass(tmp_path):
    Counted.reads = 0
    with ts.Run(tmp_path, progress=False) as run:
        data = run.data(Counted(), batch_size=2)
        for _ in run.epochs(20):
            for _ in run.batches(data, limit=3):
                pass
    assert Counted.reads <= 20 * 3 * 2 + 4


def test_a_limited_pass_that_is_left_by_break_goes_on_behind_what_it_gave(tmp_path):
    with ts.Run(tmp_path, progress=False) as run:
        data, seen = run.data(torch.arange(10), batch_size=2), []
        for _ in run.epochs(2):
            for batch in run.batches(data, limit=4):
                seen += batch.tolist()
                if run.step == 2:
                    break
    assert seen == [*range(10), 0, 1]


@pytest.mark.filterwarnings("ignore:this stream .* gave no batch in its pass 1")
def test_data_that_gives_nothing_is_named_rather_than_read_for_ever(tmp_path):
    with ts.Run(tmp_path, progress=False) as run:
        data = run.data(lambda: iter(()), batch_size=2)
        with pytest.raises(ts.DataError, match="'data' gave no batch at all"):
            list(run.batches(data, limit=2))


def net_of(run):
    return run.learner(nn.Linear(3, 1), lambda p: torch.optim.SGD(p, lr=0.1))


def square_of(net):
    return lambda rows: net(rows)[:, 0].square()


def fails_before_the_update(run, net):
    for step in run.steps(8):
        if step == 3:
            raise ValueError("in the body")
        net.update(square_of(net), torch.randn(4, 3))


def fails_behind_the_update(run, net):
    for step in run.steps(8):
        net.update(square_of(net), torch.randn(4, 3))
        [0, 1, 2][step]


def fails_in_a_function(run, net):
    def train(step):
        net.update(square_of(net), torch.randn(4, 3 if step < 2 else 2))

    for step in run.steps(8):
        train(step)


def fails_beside_another(run, net):
    for step, (_, rows) in enumerate(zip(run.steps(8), itertools.repeat(torch.randn(4, 3)), strict=False)):
        net.update(square_of(net), rows)
        assert step < 2


def fails_within_a_generator(run, net):
    def counted(steps):
        yield from steps

    for step in counted(run.steps(8)):
        net.update(square_of(net), torch.randn(4, 3))
        {0: 1, 1: 2}[step]


@pytest.mark.parametrize(
    "fails",
    [
        fails_before_the_update,
        fails_behind_the_update,
        fails_in_a_function,
        fails_beside_another,
        fails_within_a_generator,
    ],
)
def test_steps_that_an_exception_ended_are_not_gone_on_with(tmp_path, fails):
    run = ts.Run(tmp_path, device="cpu", progress=False, doctor=False)
    net = net_of(run)
    with pytest.raises(Exception):  # noqa: B017, PT011
        fails(run, net)
    with pytest.raises(ts.OptionError, match=r"was ended in the body of step \d"):
        run.steps(8)
    run.close()


def breaks(run, net):
    for step in run.steps(8):
        net.update(square_of(net), torch.randn(4, 3))
        if step == 3:
            break


def returns(run, net):
    for step in run.steps(8):
        net.update(square_of(net), torch.randn(4, 3))
        if step == 3:
            return


def takes_one(run, net):
    next(iter(run.steps(8)))
    net.update(square_of(net), torch.randn(4, 3))


def catches_within(run, net):
    for step in run.steps(8):
        try:
            {0: 1}[step]
        except KeyError:
            continue
        net.update(square_of(net), torch.randn(4, 3))


@pytest.mark.parametrize("leaves", [breaks, returns, takes_one, catches_within])
def test_steps_that_were_left_otherwise_go_on(tmp_path, leaves):
    run = ts.Run(tmp_path, device="cpu", progress=False, doctor=False)
    net = net_of(run)
    leaves(run, net)
    done = run.step
    assert [*run.steps(10)] == [*range(done, 10)]


def test_steps_go_on_in_a_run_that_is_made_again(tmp_path):
    options = {"device": "cpu", "progress": False, "doctor": False, "saving": ts.Saving(every_steps=1)}
    failed = ts.Run(tmp_path, **options)
    with pytest.raises(ValueError, match="in the body"):
        fails_before_the_update(failed, net_of(failed))
    with ts.Run(tmp_path, **options) as run:
        net_of(run)
        assert [*run.steps(8)] == [3, 4, 5, 6, 7]
