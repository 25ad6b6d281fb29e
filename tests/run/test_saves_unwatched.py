# SPDX-License-Identifier: Apache-2.0
"""A save computes nothing under the doctor's modes, and leaves them on."""

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

import truestep as ts
from truestep.doctor.runtime.operations import WatchedOperationMode


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
