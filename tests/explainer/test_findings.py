# SPDX-License-Identifier: Apache-2.0
"""A check is named for the code that the error came through, not for other faults of the file."""

import linecache
import runpy

import pytest

import truestep as ts

SCRIPT = """
import torch
from torch import nn

net = nn.Linear(3, 4)
nn.init.constant_(net.weight, -1.0)


def sample(rows):
    logits = net(rows)
    return torch.multinomial(logits, 1)


def spoilt(rows):
    return torch.multinomial(rows, 1)


CALL
"""


def note_of(path, call):
    path.write_text(SCRIPT.replace("CALL", call), "utf-8")
    linecache.checkcache()
    with pytest.raises(RuntimeError) as caught, ts.explain_errors():
        runpy.run_path(str(path))
    return "\n".join(caught.value.__notes__)


def test_a_finding_where_the_error_came_through_is_named(tmp_path):
    note = note_of(tmp_path / "through.py", "sample(torch.ones(2, 3))")
    assert "Check: LOSS012" in note
    assert "through.py:11" in note


def test_a_finding_in_a_function_that_did_not_run_is_not(tmp_path):
    assert "Check:" not in note_of(tmp_path / "beside.py", "spoilt(torch.tensor([-1.0, 2.0]))")
