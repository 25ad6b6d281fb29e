# SPDX-License-Identifier: Apache-2.0
"""What follows a pass in its epoch, and needs what the loop over it set, never meets that loop empty."""

import json
import os
import signal

import pytest
import torch
from torch import nn

import truestep as ts

ROWS = torch.arange(32.0).reshape(16, 2) / 32
EPOCHS, BATCHES = 2, 4


def begun(directory, **saving):
    run = ts.Run(
        directory, seed=0, progress=False, doctor=False, saving=ts.Saving(background=False, **saving)
    )
    net = run.learner(nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.1))
    return run, net, lambda rows: net(rows).squeeze(1).square()


def usual(directory, disturb=lambda run, place: None, **saving):
    """The loop that everybody writes first: a mean by hand, a validation by hand, both logged."""
    run, net, loss = begun(directory, **saving)
    train, check = run.data(ROWS, batch_size=4, shuffle=True), run.data(ROWS[:12], batch_size=4)
    means = []
    with run:
        for epoch in run.epochs(EPOCHS):
            total = 0.0
            for i, rows in enumerate(run.batches(train)):  # noqa: B007  (read behind the loop)
                total += net.update(loss, rows).loss.item()
                disturb(run, ("train", run.step))
            means.append((epoch, i + 1, total / (i + 1)))
            disturb(run, ("between", epoch))
            found = []
            for rows in run.batches(check):
                with torch.no_grad():
                    found.append(loss(rows).mean().item())
                disturb(run, ("check", run.step))
            run.log(error=sum(found) / len(found))
            disturb(run, ("behind", epoch))
    lines = (directory / "metrics.jsonl").read_text().splitlines()
    logged = [line["values"]["error"] for line in map(json.loads, lines) if "error" in line["values"]]
    return means, logged, net.weight.detach().clone()


PLACES = (
    [("train", step) for step in (1, 3, 4, 8, 11)]
    + [("check", step) for step in (5, 6, 7, 14)]
    + [("between", 0), ("behind", 0), ("behind", 1)]
)


@pytest.mark.sliced(2)
@pytest.mark.parametrize("every_steps", [None, 1])
def test_a_signal_anywhere_in_the_usual_loop_leaves_a_run_that_goes_on(tmp_path, every_steps):
    whole = usual(tmp_path / "whole", every_steps=every_steps)
    for place in PLACES:
        directory = tmp_path / f"{place[0]}-{place[1]}"

        def stop(run, now, place=place):
            if now == place:
                os.kill(os.getpid(), signal.SIGTERM)

        with pytest.raises(SystemExit):
            usual(directory, stop, every_steps=every_steps)
        means, logged, weights = usual(directory, every_steps=every_steps)
        assert logged == whole[1], place
        assert torch.equal(weights, whole[2]), place
        whole_means = {epoch: (count, mean) for epoch, count, mean in whole[0]}
        for epoch, count, mean in means:
            assert count < BATCHES or (count, mean) == whole_means[epoch], place


def test_a_signal_behind_the_last_batch_stops_when_what_follows_has_run(tmp_path, capsys):
    def stop(run, now):
        if now == ("train", BATCHES):
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(SystemExit) as stopped:
        usual(tmp_path / "run", stop)
    assert stopped.value.code == 143
    assert capsys.readouterr().err.count("the run stops when the code behind this pass has run") == 1
    means, logged, _ = usual(tmp_path / "run")
    assert [epoch for epoch, *_ in means] == [1]
    assert len(logged) == EPOCHS


def test_a_save_that_is_asked_for_behind_a_pass_is_made_at_the_end_of_the_epoch(tmp_path):
    def save(run, now):
        if now == ("train", BATCHES):
            run.save()
        assert now != ("train", BATCHES + 4) or len(list((tmp_path / "run" / "checkpoints").glob("0*"))) == 1

    usual(tmp_path / "run", save, every_seconds=None, at_epoch_end=False)


def test_the_passes_of_one_batch_that_make_up_an_epoch_are_saved_and_stopped(tmp_path):
    def go(stop=None):
        run, net, loss = begun(tmp_path / "run")
        first, second = run.data(ROWS, batch_size=4), run.data(ROWS, batch_size=8)
        with run:
            for _ in run.epochs(1):
                for _ in range(6):
                    for source in (first, second):
                        for rows in run.batches(source, limit=1):
                            net.update(loss, rows)
                            if run.step == stop:
                                os.kill(os.getpid(), signal.SIGTERM)
        return run.step

    with pytest.raises(SystemExit):
        go(stop=5)
    run, *_ = begun(tmp_path / "run")
    run.data(ROWS, batch_size=4), run.data(ROWS, batch_size=8)
    run.session.starting()
    assert run.step == 5
    run.close()
    assert go() == 12


def test_a_start_that_needs_a_pass_that_is_over_is_told_why_and_saves_nothing(tmp_path):
    def go(stop=False):
        run, net, loss = begun(tmp_path / "run")
        first = run.data(ROWS, batch_size=4)
        second = run.data(ROWS, batch_size=4)
        with run:
            for _ in run.epochs(1):
                for rows in run.batches(first):
                    last = net.update(loss, rows).loss
                run.log(last=last)
                for rows in run.batches(second):
                    net.update(loss, rows)
                    if stop:
                        os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(SystemExit):
        go(stop=True)
    before = sorted(path.name for path in (tmp_path / "run" / "checkpoints").glob("0*"))
    with pytest.raises(NameError) as raised:
        go()
    assert "behind a pass through 'first' that was over" in raised.value.__notes__[0]
    assert sorted(path.name for path in (tmp_path / "run" / "checkpoints").glob("0*")) == before


def test_what_the_loop_keeps_in_variables_is_told_where_bits_are_promised(tmp_path, capsys):
    def stop(run, now):
        if now == ("train", 2):
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(SystemExit):
        usual(tmp_path / "run", stop)
    capsys.readouterr()
    usual(tmp_path / "run")
    assert capsys.readouterr().err.count("if the loop keeps nothing in variables or attributes") == 1
