# SPDX-License-Identifier: Apache-2.0
"""Right programs of many kinds, written by hand: relations accuse none of them, and ask only what a loss of that kind is asked."""

import os
import warnings
from pathlib import Path
from unittest import mock

import pytest
from doctor.experiments.test_relations import pytestmark as needs_forks

from truestep.doctor.finding import Severity
from truestep.doctor.runtime.watch import Watch, WatchOptions
from truestep.doctor.selection import CheckSelection

pytestmark = (
    needs_forks  # among the first that import a framework: threads that others start would leave it untried
)
SCRIPTS = sorted((Path(__file__).parent / "right").glob("*.py"))
# what is asked about, by program
ASKED: dict[str, list[str]] = {}


@pytest.fixture(autouse=True)
def as_found():
    with mock.patch.dict(os.environ):  # frameworks set variables
        yield


@pytest.mark.sliced(20)
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_right_program_breaks_no_relation(script, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with (
        Watch(WatchOptions(CheckSelection(select=("REL",), preview=True), probe=True)) as watch,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        exec(compile(script.read_text("utf-8"), str(script), "exec"), {"__name__": "__main__"})
    assert watch.failures == []
    found = [each for each in watch.findings if each.severity is not Severity.ADVICE]
    assert [f"{each.code} {each.message}" for each in found if each.severity is not Severity.QUESTION] == []
    assert [each.code for each in found] == ASKED.get(script.stem, [])


def test_a_trainer_that_accumulates_and_evaluates_is_tried_behind_an_evaluation(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (Path(__file__).parent / "right" / "with_trainer.py").read_text("utf-8")
    text = text.replace("num_train_epochs=3", "num_train_epochs=2, gradient_accumulation_steps=2")
    select = CheckSelection(select=("REL002", "REL003", "REL007"), preview=True)
    with Watch(WatchOptions(select, probe=True)) as watch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(text.replace("160", "64"), "<trainer>", "exec"), {"__name__": "__main__"})
    assert watch.failures == []
    assert [watch.experiments.outcome(each) for each in watch.experiments.records] == [("held", None)] * 3
