# SPDX-License-Identifier: Apache-2.0
"""What one rank does by itself where all must, in calls of torch's own: it is told with its line, and nobody waits for ever."""

import re
from pathlib import Path

import pytest
import torch
from support.old_torch import DIVIDES
from support.ranks import on_ranks
from torch import nn

import truestep as ts

PROGRAM = Path(__file__).parent / "programs" / "alone.py"
PART = r"CheckpointError: rank 0 pickles divided weights at \S+alone\.py:\d+"
TOLD = {
    "file": PART
    + r", as torch\.save does, and the other ranks don't\. .* \(8, 4\) it has the part \(4, 4\), .*get_model_state_dict",
    "file behind": PART + r", as torch\.save does, and the other ranks don't\.",
    "file of all": PART + r" into \S+weights\.pt, and so does another rank",
    "barrier": r"RankError: The ranks came to different places.* rank 0: torch\.distributed \(barrier\), \S+alone\.py:\d+ "
    r"\(step 2\); rank 1: .* A call of torch\.distributed is one that all ranks make",
    "barrier behind": r"rank 0 called torch\.distributed \(barrier, at \S+alone\.py:\d+\), and rank 1 .* is gone.* all ranks make",
}


@DIVIDES
@pytest.mark.sliced(3)
@pytest.mark.parametrize("what", TOLD)
def test_it_is_told_with_its_line(tmp_path, what):
    alone, other = on_ranks(PROGRAM, what, tmp_path, seconds=60)
    assert alone.status == 1, alone.error
    assert re.search(TOLD[what], alone.error), alone.error
    assert other.status == ("behind" not in what)


@DIVIDES
def test_a_file_of_each_rank_and_one_of_whole_weights_are_right(tmp_path):
    finished = on_ranks(PROGRAM, "files of all", tmp_path, seconds=60)
    assert [(each.status, each.error) for each in finished] == [(0, "")] * 2
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8))
    ts.load_weights(net, tmp_path / "weights.pt")
    with pytest.raises(
        ts.CheckpointError,
        match=r"holds DTensors: .* a part of each\. .*ts\.load_weights\(module, directory\)",
    ):
        ts.load_weights(net, tmp_path / "0.pt")
    part = torch.load(tmp_path / "0.pt", weights_only=False)
    with pytest.raises(ts.CheckpointError, match="the given dict holds DTensors"):
        ts.load_weights(net, part)
