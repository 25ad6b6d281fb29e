# SPDX-License-Identifier: Apache-2.0
"""`quiet=True` hides notes, and nothing that says that a result is wrong or a run goes on to other bits."""

import copy
import re

import pytest
import torch
from torch import nn

import truestep as ts
from truestep.mirror.push import CheckpointPush
from truestep.run import run_documents


def trained(path, steps, *, keeps: bool, rate=0.1, **options):
    run = ts.Run(path, seed=0, device="cpu", progress=False, quiet=True, doctor=False, **options)
    net = run.learner(nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=rate), name="q")
    target = copy.deepcopy(net.module)
    if keeps:
        run.track(target=target)
    for _ in run.steps(steps):
        net.update(lambda x: (net(x) - target(x).detach() - 1).square().squeeze(1), torch.ones(4, 2))
        target.load_state_dict(net.module.state_dict())


@pytest.mark.parametrize(
    ("keeps", "options", "told"),
    [
        (False, {}, ["target, which a loss uses, has changed"]),
        (True, {}, []),
        (
            True,
            {"rate": 0.2, "resume": "edited"},
            ["what the code now makes of it, not what it would have been"],
        ),
    ],
)
def test_what_a_resume_would_change_is_told(tmp_path, capfd, keeps, options, told):
    trained(tmp_path / "run", 2, keeps=keeps)
    trained(tmp_path / "run", 4, keeps=keeps, **options)
    lines = capfd.readouterr().err.splitlines()
    assert all(any(each in line for line in lines) for each in told), lines
    assert bool(lines) == bool(told), lines


class Failing(ts.Tracker):
    def scalars(self, values, step, epoch):
        raise ConnectionError("the service is away")


def without_report(path, monkeypatch):
    monkeypatch.setattr(run_documents, "write_report", raises_full_disk)
    return {}


def with_failing_tracker(path, monkeypatch):
    return {"trackers": [Failing()]}


def with_failing_mirror(path, monkeypatch):
    monkeypatch.setattr(CheckpointPush, "send", raises_full_disk)
    return {"mirror": f"file://{path / 'store'}"}


def with_rollback(path, monkeypatch):
    return {"nonfinite": "rollback", "saving": ts.Saving(every_steps=1, rollback_after=2)}


def raises_full_disk(*_, **__):
    raise OSError(28, "No space left on device")


FAILURES = {
    without_report: r"the report could not be written .*No space left",
    with_failing_tracker: r"the tracker Failing failed in scalars \(ConnectionError: the service is away\)",
    with_failing_mirror: r"is not sent to file://.*No space left",
    with_rollback: r"2 skipped updates in a row: back to the weights of",
}


@pytest.mark.parametrize("failure", FAILURES)
def test_what_a_mirror_a_tracker_and_the_report_lose_is_told(tmp_path, capfd, monkeypatch, failure):
    options = failure(tmp_path, monkeypatch)
    with ts.Run(tmp_path / "run", device="cpu", progress=False, quiet=True, doctor=False, **options) as run:
        net = run.learner(nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.1), name="q")
        for step in run.steps(6):
            factor = float("nan") if failure is with_rollback and step >= 3 else 1.0
            net.update(lambda x, factor=factor: net(x)[:, 0] ** 2 * factor, torch.ones(4, 2))
            run.log(value=step)
    said = capfd.readouterr().err
    assert re.search(f"^truestep: .*{FAILURES[failure]}", said, re.MULTILINE), said
    assert not [line for line in said.splitlines() if "fetched" in line or "saved" in line]
