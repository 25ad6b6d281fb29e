# SPDX-License-Identifier: Apache-2.0
"""Counters take over what they know and nothing else: a checkpoint can't set an attribute of anything."""

import pytest
import torch
from torch import nn

import truestep as ts
from truestep.engine.counters import UpdateCounters


def test_they_go_into_a_state_and_back():
    counters = UpdateCounters(attempts=5, updates=3, skipped=2, micro_batch_in_use=16)
    other = UpdateCounters()
    other.load_state_dict(counters.state_dict())
    assert other == counters


def test_applied_and_skipped_updates_are_counted():
    counters = UpdateCounters()
    counters.count_skipped(overflow=True)
    counters.count_skipped()
    assert (counters.skipped, counters.skipped_in_a_row, counters.overflows_in_a_row) == (2, 2, 0)
    counters.count_applied()
    assert (counters.updates, counters.skipped, counters.skipped_in_a_row) == (1, 2, 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"module": None}, "unexpected counter module"),
        ({"__class__": 3}, "unexpected counter __class__"),
        ({"updates": None}, "counter updates=None, expected a whole number"),
        ({"updates": -1}, "counter updates=-1"),
        ({"updates": True}, "counter updates=True"),
        ({"skipped": 1.5}, "counter skipped=1.5"),
        ({"micro_batch_in_use": "auto"}, "micro_batch_in_use='auto'"),
    ],
)
def test_other_counters_are_refused_before_anything_changes(make_learner, snapshot, same, change, message):
    learner = make_learner(nn.Linear(2, 1))
    before, state = snapshot(learner), learner.training_state()
    state["counters"] = {**state["counters"], **change}
    state["modules"] = {name: torch.zeros_like(value) for name, value in state["modules"].items()}
    with pytest.raises(ts.CheckpointError, match=message):
        learner.load_training_state(state)
    assert same(before, snapshot(learner))


def test_missing_counters_are_refused():
    with pytest.raises(ts.CheckpointError, match="no counter updates"):
        UpdateCounters().load_state_dict({"attempts": 1})
