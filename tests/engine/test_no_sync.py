# SPDX-License-Identifier: Apache-2.0
"""The law of no hidden synchronisation on a stand-in: whatever makes the host wait is counted (on a card: test_no_sync_gpu.py)."""

from pathlib import Path

import pytest
from support.card import Card
from support.steps import LOSSES, OPTIMIZERS, OPTIONS, training

import truestep as ts
from truestep.engine import step


@pytest.fixture
def card():
    with Card() as card:
        yield card


@pytest.mark.parametrize("nonfinite", ["raise", "skip", "keep"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", OPTIONS)
@pytest.mark.sliced(12)
def test_the_host_waits_for_nothing_in_a_step(card, tmp_path, kind, loss, optimizer, nonfinite):
    with ts.Run(tmp_path, device="cuda", progress=False, nonfinite=nonfinite) as run:
        net, update = training(run.learner, OPTIONS[kind], optimizer, loss)
        for number in run.steps(3):
            card.reads.clear()
            update()
            assert number == 0 or card.reads == []  # the first one may make states
        assert {parameter.device.type for parameter in net.module.parameters()} == {"cuda"}


def test_a_read_that_is_put_into_the_step_is_found(card, tmp_path, monkeypatch):
    made = step.step_optimizers
    monkeypatch.setattr(
        step, "step_optimizers", lambda learner, *rest: (learner.was_read(), made(learner, *rest))
    )
    with ts.Run(tmp_path, device="cuda", progress=False) as run:
        net, update = training(run.learner, {})
        weight = next(net.module.parameters())
        monkeypatch.setattr(type(net._parts), "was_read", lambda _: weight.sum().item(), raising=False)
        for _ in run.steps(2):
            card.reads.clear()
            update()
            assert [read.partition(" at ")[0] for read in card.reads] == ["_local_scalar_dense"]


PAGE = Path(__file__).parents[2] / "docs/laws/no-hidden-sync.md"


@pytest.mark.sliced(3)
@pytest.mark.parametrize("kind", OPTIONS)
def test_the_page_says_which_options_a_graph_could_repeat(card, tmp_path, kind):
    with ts.Run(tmp_path, device="cuda", progress=False) as run:
        _, update = training(run.learner, OPTIONS[kind])
        steps = []
        for _ in run.steps(5):  # the schedule's warm-up takes two
            card.calls.clear()
            update()
            steps.append([*card.calls])
    answer = "yes" if steps[-1] == steps[-2] else "no"
    assert f"| {kind} | {answer}" in PAGE.read_text("utf-8")
    assert [len(calls) for calls in steps[1:]] == [len(steps[1])] * 4
