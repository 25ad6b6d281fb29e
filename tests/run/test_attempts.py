# SPDX-License-Identifier: Apache-2.0
"""What counts as a run that died of its checkpoint, and how a run is said to have ended."""

import os
import warnings

import pytest
import torch
from torch import nn

import truestep as ts
from truestep.checkpoints.resume_attempts import MAX_ATTEMPTS


def train(directory, *, lr=0.1, epochs=2, die_at=None, saving=None, fail=None):
    """Train four batches an epoch; `fail` is raised at the first batch."""
    with ts.Run(directory, progress=False, quiet=True, doctor=False, saving=saving) as run:
        net = run.learner(nn.Linear(4, 1), lambda p: torch.optim.SGD(p, lr=lr))
        data = run.data(torch.ones(16, 4), batch_size=4)
        for _ in run.epochs(epochs):
            for batch in run.batches(data):
                if fail is not None:
                    raise fail
                net.update(lambda rows: net(rows)[:, 0].square(), batch)
                if run.step == die_at:
                    os._exit(9)
            run.log(accuracy=0.5)


def in_child(**options):
    child = os.fork()
    if child == 0:
        try:
            train(**options)
        except (KeyError, ts.TruestepError):
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def state_of(directory):
    [found] = ts.runs(directory).runs
    return found.state


SAVINGS = {
    "at the end of the last epoch": ts.Saving(epoch_seconds=0),
    "at the last step": ts.Saving(every_steps=2, at_epoch_end=False),
    "the best": ts.Saving(best="accuracy", epoch_seconds=0),
    "only at the end": ts.Saving(at_epoch_end=False, every_seconds=None),
}


@pytest.mark.parametrize("saving", list(SAVINGS.values()), ids=list(SAVINGS))
def test_a_run_that_ended_is_finished_whatever_its_last_save_was_for(tmp_path, saving):
    for _ in range(2):  # started again there is nothing left to do
        train(tmp_path / "run", saving=saving)
        assert state_of(tmp_path / "run") == "finished"
    train(tmp_path / "run", saving=saving, epochs=3)
    assert state_of(tmp_path / "run") == "finished"


def test_a_finished_run_that_goes_on_and_is_killed_is_interrupted(tmp_path):
    saving = ts.Saving(epoch_seconds=0, every_seconds=None)
    train(tmp_path / "run", saving=saving)
    assert in_child(directory=tmp_path / "run", saving=saving, epochs=9, die_at=10) == 9
    assert state_of(tmp_path / "run") == "interrupted"


def test_a_script_that_ends_at_a_save_was_stopped_and_not_killed(tmp_path):
    with ts.Run(tmp_path / "run", progress=False, quiet=True, doctor=False) as run:
        net = run.learner(nn.Linear(4, 1), lambda p: torch.optim.SGD(p, lr=0.1))
        net.update(lambda rows: net(rows)[:, 0].square(), torch.ones(4, 4))
        run.save()
    assert state_of(tmp_path / "run") == "stopped"


@pytest.fixture
def killed(tmp_path):
    """A run that was killed after a save."""
    assert in_child(directory=tmp_path / "run", epochs=9, die_at=7, saving=ts.Saving(every_steps=2)) == 9
    return tmp_path / "run"


def test_starts_that_were_refused_do_not_count_against_a_checkpoint(killed):
    for _ in range(MAX_ATTEMPTS + 1):
        assert in_child(directory=killed, epochs=9, lr=0.2) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(killed, epochs=9)


def test_mistakes_in_the_users_own_code_do_not_count_against_a_checkpoint(killed):
    for _ in range(MAX_ATTEMPTS + 1):
        assert in_child(directory=killed, epochs=9, fail=KeyError("labels")) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(killed, epochs=9)


def test_deaths_and_losses_that_are_not_finite_do_count(killed):
    saving = ts.Saving(every_steps=1000, at_epoch_end=False)
    error = ts.NonFiniteError("the loss is NaN")
    assert in_child(directory=killed, epochs=9, fail=error, saving=saving) == 1
    for _ in range(MAX_ATTEMPTS - 1):
        assert in_child(directory=killed, epochs=9, die_at=8, saving=saving) == 9
    with pytest.warns(UserWarning, match=f"{MAX_ATTEMPTS} runs went on from it"):
        train(killed, epochs=9)
