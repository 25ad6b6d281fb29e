# SPDX-License-Identifier: Apache-2.0
"""`quiet=True` hides notes, and nothing that says that a result is wrong or a run goes on to other bits."""

import copy

import pytest
import torch
from torch import nn

import truestep as ts


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
