# SPDX-License-Identifier: Apache-2.0
"""A save computes nothing under the doctor's modes, and leaves them on."""

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

import truestep as ts
from truestep.doctor.runtime.operations import (
    WatchedOperationMode,
    without_watched_operations,
    without_watching_modes,
)


class Seen(TorchFunctionMode):
    """Stands for a mode of the user's."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@pytest.mark.usefixtures("nothing_was_compiled")
def test_the_watch_is_told_of_no_operation_of_a_save_and_of_all_behind_it(tmp_path):
    told = []
    mode = WatchedOperationMode(lambda name, *_: told.append(name))
    run = ts.Run(tmp_path / "run", doctor=False, quiet=True)
    net = run.learner(nn.Linear(3, 1), lambda p: torch.optim.AdamW(p, lr=1e-2))
    data = run.data(torch.ones(4, 3), batch_size=4)
    for batch in run.batches(data):
        net.update(lambda rows: net(rows).squeeze(1), batch)
        with Seen():
            mode.switch(True)
            modes = _get_current_function_mode_stack()
            run.session._saver.save_now("a test")
            assert told == []
            assert _get_current_function_mode_stack() == modes
            torch.zeros(2).add(1)
            assert told
            mode.switch(False)


@pytest.mark.usefixtures("nothing_was_compiled")
@pytest.mark.parametrize("left_out", [without_watched_operations, without_watching_modes])
def test_a_watch_that_ends_while_its_modes_are_left_out_leaves_none(left_out):
    mode = WatchedOperationMode(lambda *_: None)
    before = _get_current_function_mode_stack()
    mode.switch(True)
    with Seen() as seen:
        with left_out():
            mode.switch(False)
        assert _get_current_function_mode_stack() == [*before, seen]
    assert _get_current_function_mode_stack() == before


@pytest.mark.usefixtures("nothing_was_compiled")
@pytest.mark.parametrize("left_out", [without_watched_operations, without_watching_modes])
def test_a_watch_that_begins_while_modes_are_left_out_is_told_behind_it(left_out):
    told = []
    mode = WatchedOperationMode(lambda name, *_: told.append(name))
    before = _get_current_function_mode_stack()
    with left_out():
        mode.switch(True)
    torch.zeros(2).add(1)
    assert "add" in told
    mode.switch(False)
    assert _get_current_function_mode_stack() == before


@pytest.mark.usefixtures("nothing_was_compiled")
def test_a_run_that_ends_by_an_error_behind_a_single_batch_leaves_no_mode(tmp_path):
    before = _get_current_function_mode_stack()
    with ts.Run(tmp_path / "run", quiet=True) as run:
        net = run.learner(nn.Linear(3, 1), lambda p: torch.optim.AdamW(p, lr=1e-2))
        assert run.epochs(1)
        batch = next(run.batches(run.data(torch.ones(4, 3), batch_size=4)))
        with pytest.raises(ts.NonFiniteError):
            net.update(lambda rows: net(rows).squeeze(1) / 0 * 0, batch)
    assert _get_current_function_mode_stack() == before
