# SPDX-License-Identifier: Apache-2.0
"""Runs that were left in their middle by earlier versions go on.

In format 1 tuples and other dicts had words of their own; before learners had places they counted their updates together.
"""

import os
import shutil
from collections import Counter
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from support import golden_learners
from support.golden_run import STATE, train

import truestep as ts

GOLDEN = [Path(__file__).parent / "golden" / name for name in ("0.1.0", "format-2")]
GOLDEN_LEARNERS = GOLDEN[0].with_name("learners")

each_format = pytest.mark.parametrize("golden", GOLDEN, ids=["1", "2"])


def same(left, right):
    if isinstance(left, torch.Tensor):
        return torch.equal(left, right)
    if isinstance(left, dict):
        return type(left) is type(right) and same(list(left.items()), list(right.items()))
    if isinstance(left, list | tuple):
        return type(left) is type(right) and len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and left == right


@each_format
def test_its_states_are_those_that_were_saved(golden):
    saved = ts.read_checkpoint(golden)
    assert same(saved["user"], STATE)
    assert type(saved["user"]["counts"]) is Counter
    assert type(saved["random"]["python"][1]) is tuple
    learner = saved["learners"]["sequential"]
    assert learner["optimizers"][0]["param_groups"][0]["betas"] == (0.8, 0.9)
    assert list(learner["optimizers"][0]["state"]) == [0, 1, 2, 3]


@each_format
@pytest.mark.parametrize("times", [1, 2])
def test_it_goes_on_and_ends_where_it_would_have_ended(times, golden, tmp_path):
    shutil.copytree(golden, tmp_path / "old")
    for _ in range(times):  # the second time from a checkpoint of today
        run, net = train(tmp_path / "old")
    whole, expected = train(tmp_path / "new", state=STATE)
    assert run.step == whole.step == 12
    assert same(dict(run.state), STATE)
    weights = net.state_dict()
    for name, value in expected.state_dict().items():
        torch.testing.assert_close(weights[name], value, rtol=1e-6, atol=1e-7)


def test_learners_that_counted_their_updates_together_go_on_so(tmp_path):
    """Left once more on its way: today's checkpoints of such a run say that it still does."""
    shutil.copytree(GOLDEN_LEARNERS, tmp_path / "run")
    if (child := os.fork()) == 0:
        golden_learners.train(tmp_path / "run", leave_at=11)
    os.waitpid(child, 0)
    run, learners = golden_learners.train(tmp_path / "run")
    assert run.step == 12
    for name, value in load_file(GOLDEN_LEARNERS.with_name("learners-end.safetensors")).items():
        learner, _, key = name.partition(".")
        torch.testing.assert_close(learners[learner].state_dict()[key], value, rtol=1e-6, atol=1e-7)
