# SPDX-License-Identifier: Apache-2.0
"""Correct trainings of many kinds, read and run under watch: none is accused, and no check breaks on one."""

import os
import sys
import warnings
from pathlib import Path
from unittest import mock

import pytest
import torch
import torch._dynamo  # sets an environment variable when it is first imported

from truestep.doctor.finding import Severity
from truestep.doctor.linting import read_text
from truestep.doctor.runtime.watch import Watch, WatchOptions

SCRIPTS = sorted((Path(__file__).parent / "clean").glob("*.py"))
# what only their authors know, and is asked
ASKED = {"dropout_as_uncertainty": ["EVAL002"]}


@pytest.fixture(autouse=True)
def as_found(monkeypatch):
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # a process group sets its own
    state = torch.get_rng_state()
    with mock.patch.dict(os.environ):  # so that what a script sets is taken back
        yield
    torch.set_rng_state(state)
    torch._dynamo.reset()


@pytest.mark.sliced(14)
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_correct_training_is_not_accused(script, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = script.read_text("utf-8")
    read = read_text(text, str(script))
    with Watch(WatchOptions(probe=True)) as watched, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(text, str(script), "exec"), {"__name__": "__main__"})
    found = [*read.findings, *watched.findings]
    accused = [
        f"{each.code} {each.place.line} {each.message}"
        for each in found
        if each.severity in (Severity.BUG, Severity.RISK)
    ]
    assert accused == []
    assert [each.code for each in found if each.severity is Severity.QUESTION] == ASKED.get(script.stem, [])
    assert watched.failures == read.failures == []
