# SPDX-License-Identifier: Apache-2.0
"""An update that fails before it begins takes no number: a retry draws what it would have drawn."""

import pytest
import torch
from torch import nn

from truestep.core.buffers import MovingBufferSnapshot


def test_memory_that_runs_out_before_an_update_costs_it_no_number(make_learner, make_context, monkeypatch):
    module = nn.Sequential(nn.BatchNorm1d(3), nn.Dropout(), nn.Linear(3, 1))
    context = make_context()
    learner = make_learner(module, context=context)
    inputs = torch.randn(8, 3)

    def loss(batch):
        return learner(batch).squeeze(1)

    def full(_self):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(MovingBufferSnapshot, "keep", full)
        with pytest.raises(MemoryError):
            learner.update(loss, inputs)
    assert learner._parts.keys.count == 0
