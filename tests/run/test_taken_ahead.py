# SPDX-License-Identifier: Apache-2.0
"""Batches that are asked for before the last ones were used: resumed exactly, or said plainly."""

import itertools
import os
import signal

import pytest
import torch
from torch import nn

import truestep as ts

ROWS = torch.arange(96.0).reshape(48, 2) / 96
WORDS = "a batch was asked for before the update of the one before it"


def plain(batches):
    yield from batches


def pairs(batches):
    for two in zip(batches, batches, strict=False):
        yield from two


def by(batches, size):
    while several := list(itertools.islice(batches, size)):
        yield several


def chunks(batches):
    for several in by(batches, 3):
        yield from several


def gathered(batches):
    for several in by(batches, 2):
        yield torch.cat(several)


def whole_list(batches):
    yield from list(batches)


def pairwise(batches):
    for two in itertools.pairwise(batches):
        yield from two


class Killed(BaseException):
    """Stands for a kill: nothing is saved because of it."""


def go(directory, order, batch_size=8, stop=None, kill=None):
    saving = ts.Saving(every_steps=1, background=False)
    run = ts.Run(directory, seed=0, progress=False, doctor=False, saving=saving)
    net = run.learner(nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.1))
    source = run.data(ROWS, batch_size=batch_size, shuffle=True)
    made = 0
    try:
        for _ in run.epochs(2):
            for rows in order(run.batches(source)):
                net.update(lambda x: net(x).squeeze(1).square(), rows)
                made += 1
                if made == stop:
                    os.kill(os.getpid(), signal.SIGTERM)
                if made == kill:
                    raise Killed
    except Killed:
        run.session.end._crashed = True  # so that the next start finds what a kill leaves
        run.session.end._release_everything(alive=False)
        raise
    return net.weight.detach().clone()


@pytest.mark.sliced(3)
@pytest.mark.parametrize("order", [plain, pairs, chunks, gathered, whole_list])
def test_batches_that_are_taken_ahead_and_used_are_resumed_exactly(tmp_path, capsys, order):
    whole = go(tmp_path / "whole", order)
    for number in (1, 2, 3, 5, 6):
        with pytest.raises(Killed):
            go(tmp_path / f"killed-{number}", order, kill=number)
        assert torch.equal(go(tmp_path / f"killed-{number}", order), whole), number
    with pytest.raises(SystemExit):
        go(tmp_path / "stopped", order, stop=3)
    assert torch.equal(go(tmp_path / "stopped", order), whole)
    assert WORDS not in capsys.readouterr().err


@pytest.mark.parametrize(("order", "batch_size"), [(pairwise, 8), (whole_list, 2)])
def test_what_can_not_be_resumed_exactly_is_said_once(tmp_path, capsys, order, batch_size):
    go(tmp_path / "run", order, batch_size)
    assert capsys.readouterr().err.count(WORDS) == 1


def by_number(run, update, warm):
    for step in run.steps(30):
        if step >= warm:
            update()


def by_full_buffer(run, update, warm):
    seen = []
    for step in run.steps(30):
        seen.append(step)
        if len(seen) <= warm:
            continue
        update()


def by_two_loops(run, update, warm):
    steps = run.steps(30)
    for _ in itertools.islice(steps, warm):
        pass
    for _ in steps:
        update()


def by_skipped(run, update, warm):
    for step in run.steps(30):
        if step == 0 or not 5 <= step < 5 + warm:  # it acts on its own for a while, in the middle
            update()
            update()


@pytest.mark.parametrize("warm", [1, 3, 7, 12, 16])
@pytest.mark.parametrize("loop", [by_number, by_full_buffer, by_two_loops, by_skipped])
def test_steps_without_an_update_take_no_batch_ahead(tmp_path, capsys, loop, warm):
    run = ts.Run(tmp_path / "run", seed=0, progress=False, doctor=False)
    net = run.learner(nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.1))
    losses = []
    loop(run, lambda: losses.append(net.update(lambda x: net(x).squeeze(1).square(), ROWS[:8])), warm)
    run.close()
    assert len(losses) > 10
    assert "was asked for before" not in capsys.readouterr().err


@pytest.mark.parametrize("ahead", [1, 3, 9])
def test_batches_that_wait_in_a_queue_are_told(tmp_path, capsys, ahead):
    run = ts.Run(tmp_path / "run", seed=0, progress=False, doctor=False)
    net = run.learner(nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.1))
    source, waiting = run.data(ROWS, batch_size=2, shuffle=True), []
    for _ in run.epochs(1):
        for rows in run.batches(source):
            waiting.append(rows)
            if len(waiting) > ahead:
                net.update(lambda x: net(x).squeeze(1).square(), waiting.pop(0))
        for rows in waiting:
            net.update(lambda x: net(x).squeeze(1).square(), rows)
    assert capsys.readouterr().err.count(WORDS) == 1


def test_a_loop_without_updates_is_saved_and_stopped_all_the_same(tmp_path):
    run = ts.Run(tmp_path / "run", seed=0, progress=False, quiet=True, doctor=False)
    run.learner(nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.1))
    source = run.data(ROWS, batch_size=1)

    def measure():
        for _ in run.batches(source):
            if run.step == 2:
                os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(SystemExit):
        measure()
    assert run.step == 17


def skips_one(update, batches):
    for number, rows in enumerate(batches):
        if number == 2:
            continue
        update(rows)


def skips_the_first(update, batches):
    for number, rows in enumerate(batches):
        if number:
            update(rows)


def skips_by_content(update, batches):
    for rows in batches:
        if rows.mean() > 0.9:
            continue
        update(rows)


def warms_up(update, batches):
    for number, rows in enumerate(batches):
        if number < 4:
            rows.mean()
            continue
        update(rows)


def skips_and_changes(update, batches):
    for number, rows in enumerate(batches):
        if number == 1:
            continue
        update(2 * rows - 1)


def critic_by_hand(update, batches):
    for number, rows in enumerate(batches):
        if number % 3 != 2:
            rows.sum()
        else:
            update(rows)
            update(rows)


def keeps_what_it_skips(update, batches):
    skipped = []
    for number, rows in enumerate(batches):
        if number in (1, 2):
            skipped.append(rows)
            continue
        update(rows)


def by_hand(update, batches):
    before = None
    for rows in batches:
        if before is not None:
            update(before)
        before = rows
    update(before)


def by_hand_later(update, batches):
    before = None
    for number, rows in enumerate(batches):
        if number < 3:
            update(rows)
            continue
        if before is not None:
            update(before)
        before = rows
    update(before)


def train_so(folder, loop, batch_size=2):
    run = ts.Run(folder, seed=0, progress=False, doctor=False)
    net = run.learner(nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.1))
    source = run.data(ROWS, batch_size=batch_size, shuffle=True)
    for _ in run.epochs(2):
        loop(lambda rows: net.update(lambda x: net(x).squeeze(1).square(), rows), run.batches(source))


@pytest.mark.parametrize(
    "loop",
    [
        skips_one,
        skips_the_first,
        skips_by_content,
        warms_up,
        skips_and_changes,
        critic_by_hand,
        keeps_what_it_skips,
    ],
)
def test_batches_that_are_skipped_are_not_taken_for_late_ones(tmp_path, capsys, loop):
    train_so(tmp_path / "run", loop)
    assert "was asked for before" not in capsys.readouterr().err


@pytest.mark.parametrize("loop", [by_hand, by_hand_later])
def test_batches_that_are_used_one_later_are_told_also_in_the_middle(tmp_path, capsys, loop):
    train_so(tmp_path / "run", loop)
    assert capsys.readouterr().err.count(WORDS) == 1
