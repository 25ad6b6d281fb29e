# SPDX-License-Identifier: Apache-2.0
"""Trainings that can't have been meant so: said once, and never of one that is right."""

import pytest
import torch
from torch import nn

import truestep as ts

DATA = torch.ones(8, 3)
SAID = (
    "no update was made in 2 batches, so the weights of 'linear' are as they were",
    "ts.Saving(best='val_acc') waits for run.log(val_acc=...)",
    "ts.plateau(o, metric='val') of 'linear' waits for run.log(val=...)",
    "began inside the body of another loop over run.epochs",
    "are cut off. ",
)


def train(
    folder, *, epochs=3, updates=True, log=lambda epoch: {}, schedule=None, best=None, starts_at=0, inner=0
):
    run = ts.Run(folder, device="cpu", progress=False, saving=ts.Saving(best=best))
    net = run.learner(
        nn.Linear(3, 1), lambda p: torch.optim.SGD(p, lr=0.1), schedule=schedule, starts_at=starts_at
    )
    source = run.data(DATA, batch_size=4)
    for epoch in run.epochs(epochs):
        for batch in run.batches(source):
            if updates:
                net.update(lambda rows: net(rows).square().sum(1), batch)
        run.log(**log(epoch))
        for _ in run.epochs(inner) if inner else ():
            pass
    run.close()


def plateau(optimizer):
    return ts.plateau(optimizer, metric="val")


OMISSIONS = {
    "no update": ({"updates": False}, SAID[0]),
    "a best never logged": (
        {"best": "val_acc", "log": lambda _: {"valacc": 0.5}},
        "which has not come in 2 epochs: no checkpoint is kept as the best. Logged was valacc. Did you mean 'valacc'?",
    ),
    "a best in one epoch": (
        {"best": "val_acc", "epochs": 1, "log": lambda _: {"valacc": 0.5}},
        "which did not come before the training ended: no checkpoint is kept as the best. Logged was valacc.",
    ),
    "nothing logged": ({"best": "val_acc"}, "Nothing had been logged by then"),
    "a plateau never fed": (
        {"schedule": plateau, "log": lambda _: {"vla": 0.5}},
        "the learning rate never changes. Logged was vla. Did you mean 'vla'?",
    ),
    "a picture cut off": (
        {"log": lambda _: {"samples": ts.Image(torch.full((2, 2), -0.5))}},
        "4 of 4 values lie outside [0, 1] and are cut off. Say which values are black and white: ts.Image(pixels, low=-1.0",
    ),
    "a sound cut off": (
        {"log": lambda _: {"speech": ts.Audio(torch.full((9,), 2.0), 8000)}},
        "run.log(speech=...): 9 of 9 values lie outside [-1, 1] and are cut off. Bring the wave to -1 ... 1",
    ),
    "epochs in epochs": ({"inner": 3}, SAID[3]),
}


@pytest.mark.parametrize("kind", OMISSIONS)
def test_it_is_said_once(tmp_path, capsys, kind):
    options, words = OMISSIONS[kind]
    train(tmp_path / "run", **options)
    said = capsys.readouterr().err
    assert said.count(words) == 1
    assert sum(said.count(each) for each in SAID) == 1


RIGHT = {
    "a picture within its range": {"log": lambda _: {"samples": ts.Image(torch.ones(2, 2))}},
    "plain": {},
    "best": {"best": "val_acc", "log": lambda _: {"val_acc": 0.5}},
    "best, measured in every second epoch": {
        "best": "val_acc",
        "log": lambda epoch: {"val_acc": 0.5} if epoch % 2 else {"loss": 1.0},
    },
    "plateau": {"schedule": plateau, "log": lambda _: {"val": 0.5}},
    "a learner that waits": {"starts_at": 100, "epochs": 1},
    "nothing to do": {"epochs": 0, "best": "val_acc"},
}


@pytest.mark.parametrize("kind", RIGHT)
def test_nothing_is_said_of_a_training_that_is_right(tmp_path, capsys, kind):
    train(tmp_path / "run", **RIGHT[kind])
    said = capsys.readouterr().err
    assert [each for each in SAID if each in said] == []


@pytest.mark.parametrize("kind", ["best", "plateau", "plain"])
def test_a_run_that_goes_on_remembers_what_came_before(tmp_path, capsys, kind):
    """A process that trains one more epoch and is not told of the metric again has had it all the same."""
    options = RIGHT[kind]
    train(tmp_path / "run", **options)
    train(tmp_path / "run", **{**options, "epochs": 4, "log": lambda _: {"loss": 1.0}})
    said = capsys.readouterr().err
    assert [each for each in SAID if each in said] == []


def net_with_dropout():
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 1))


def updated_in(folder, change, module):
    """Two updates as it was made, then three after `change`."""
    run = ts.Run(folder, device="cpu", progress=False)
    net = run.learner(module, lambda p: torch.optim.SGD(p, lr=0.01), name="net")
    for index in range(5):
        if index == 2:
            change(net)
        net.update(lambda rows: net(rows).square().sum(1), torch.randn(8, 3))
    run.close()


def test_updates_in_evaluation_mode_are_told_of_once(tmp_path, capsys):
    updated_in(tmp_path / "run", lambda net: net.eval(), net_with_dropout())
    said = capsys.readouterr().err
    assert said.count("'net' is updated in evaluation mode, so BatchNorm1d and Dropout in it") == 1
    assert "Write net.train() before the update" in said


@pytest.mark.parametrize(
    ("change", "module"),
    [
        (lambda net: net[1].eval(), net_with_dropout()),
        (lambda net: net.eval(), nn.Linear(3, 1)),  # is the same in both modes
        (lambda net: net.evaluate(lambda rows: net(rows).squeeze(1), [torch.ones(4, 3)]), net_with_dropout()),
    ],
    ids=["a part", "no such layers", "an evaluation"],
)
def test_nothing_is_said_of_a_mode_that_is_lawful(tmp_path, capsys, change, module):
    updated_in(tmp_path / "run", change, module)
    assert "evaluation mode" not in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["idle", "both", "together", "late", "copied", "averaged"])
def test_a_learner_that_nothing_updates_is_named_at_the_end(tmp_path, capsys, kind):
    run = ts.Run(tmp_path / "run", progress=False)
    net, other = (
        run.learner(torch.nn.Linear(3, 3), lambda p: torch.optim.SGD(p, lr=0.1), name=name, starts_at=start)
        for name, start in (("net", 0), ("other", 9 if kind == "late" else 0))
    )

    def loss(rows):
        return other(net(rows)).square().mean(1)

    rows = torch.ones(4, 3)
    for _ in run.steps(3):
        net.update(loss, rows)
        if kind == "both":
            other.update(loss, rows)
        if kind == "together":
            ts.update([net, other], loss, rows)
        if kind == "copied":
            other.load_state_dict(net.state_dict())
        if kind == "averaged":
            with torch.no_grad():
                for mine, given in zip(other.parameters(), net.parameters(), strict=True):
                    mine.lerp_(given, 0.1)
    said = capsys.readouterr().err
    told = "'other' was never updated in 3 steps"
    assert (told in said) == (kind == "idle")
    assert "'net' was never" not in said


def steps(folder, body, num=4):
    run = ts.Run(folder, device="cpu", progress=False)
    net = run.learner(nn.Linear(3, 1), lambda p: torch.optim.SGD(p, lr=0.1), name="net")
    sources = run.data(DATA, batch_size=4), run.data(DATA, batch_size=2)
    for _ in run.steps(num):
        body(run, lambda batch: net.update(lambda rows: net(rows).square().sum(1), batch), sources)
    run.close()


def a_pass_in_each(run, update, sources):
    for batch in run.batches(sources[0]):
        update(batch)


def two_passes_in_each(run, update, sources):
    for source in sources:
        a_pass_in_each(run, update, [source])


def numbered(run, update, sources):
    for _, batch in enumerate(run.batches(sources[1])):
        update(batch)
        update(batch)


@pytest.mark.parametrize("body", [a_pass_in_each, two_passes_in_each, numbered])
def test_passes_in_steps_are_named_once(tmp_path, capsys, body):
    steps(tmp_path / "run", body)
    assert capsys.readouterr().err.count("each body of run.steps holds a whole pass over run.batches(") == 1


def some_at_a_time(run, update, sources):
    for batch in run.batches(sources[1], limit=2):
        update(batch)


def of_a_batch_made_here(run, update, sources):
    for _ in range(3):
        update(DATA[:4])


def measured(run, update, sources):
    update(DATA[:4])
    for batch in run.batches(sources[1]):
        batch.mean()
    update(DATA[4:])


@pytest.mark.parametrize("body", [some_at_a_time, of_a_batch_made_here, measured])
def test_nothing_is_said_of_other_loops_in_steps(tmp_path, capsys, body):
    steps(tmp_path / "run", body)
    assert "each body of run.steps" not in capsys.readouterr().err


@pytest.mark.parametrize("has_own", [False, True])
def test_another_runs_learner_in_the_loop_of_a_run_without_one_is_said(tmp_path, capsys, has_own):
    def sgd(parameters):
        return torch.optim.SGD(parameters, lr=0.1)

    first = ts.Run(tmp_path / "first", device="cpu", progress=False)
    net = first.learner(nn.Linear(3, 1), sgd)
    second = ts.Run(tmp_path / "second", device="cpu", progress=False)  # as in a cell that was edited
    if has_own:
        second.learner(nn.Linear(3, 1), sgd)
    source = second.data(DATA, batch_size=4)
    for _epoch in second.epochs(2):
        for batch in second.batches(source):
            net.update(lambda rows: net(rows).square().sum(1), batch)
    for run in (second, first):
        run.close()
    said = capsys.readouterr().err
    assert said.count("no checkpoint of second holds what is trained") == (not has_own)


def test_a_learner_made_again_for_its_module_names_the_way_on(tmp_path):
    run = ts.Run(tmp_path / "run", device="cpu", progress=False)
    module = nn.Linear(3, 1)
    run.learner(module, lambda p: torch.optim.SGD(p, lr=0.1), name="net")
    with pytest.raises(
        ts.OptionError,
        match=r"called again for the module that the learner 'net' has already.*cell is run twice",
    ):
        run.learner(module, lambda p: torch.optim.SGD(p, lr=0.1), name="net")
    run.close()


def test_a_notebook_is_told_which_cell_to_run_again(tmp_path, monkeypatch):
    def made(has_learner):
        run = ts.Run(tmp_path / "run", device="cpu", progress=False)
        if has_learner:
            run.learner(nn.Linear(3, 1), lambda p: torch.optim.SGD(p, lr=0.1), name="net")
        return run

    run = made(has_learner=True)
    for _epoch in run.epochs(1):
        pass
    monkeypatch.setattr("truestep.run.notebook.is_interactive_session", lambda: True)
    with pytest.raises(ts.OptionError, match=r"run the cell with ts\.Run\(\.\.\.\) once more"):
        run.learner(nn.Linear(3, 1), lambda p: torch.optim.SGD(p, lr=0.1), name="other")
    run.save()
    run.close()
    again = made(has_learner=False)
    with pytest.raises(ts.CheckpointError, match=r"It has no learner yet: call run\.learner"):
        next(iter(again.epochs(2)))
    again.close()
