# SPDX-License-Identifier: Apache-2.0
"""A source that is exhausted beside a longer one stays so when the run goes on."""

import itertools
import os
import signal
import textwrap

import pytest
import torch
from support import warm
from torch import nn

import truestep as ts

ROWS = torch.arange(40.0).reshape(20, 2) / 40


def longest(first, second):
    yield from itertools.zip_longest(first(), second())


def nested(first, second):
    for rows in first():
        yield rows, None
        for others in second():
            yield None, others


def cycled(first, second):
    reading = second()
    for rows in first():
        others = next(reading, None)
        if others is None:
            reading = second()
            others = next(reading)
        yield rows, others


@pytest.mark.sliced(3)
@pytest.mark.parametrize("order", [longest, nested, cycled])
def test_a_shorter_source_beside_a_longer_one_resumes(tmp_path, order):
    def go(directory, stop=None):
        with ts.Run(directory, seed=0, progress=False, quiet=True, doctor=False) as run:
            net = run.learner(nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.1))
            first = run.data(ROWS, batch_size=4, shuffle=True)
            second = run.data(ROWS[:12], batch_size=6, shuffle=True)
            for _ in run.epochs(2):
                for pair in order(lambda: run.batches(first), lambda: run.batches(second)):
                    for rows in pair:
                        if rows is not None:
                            net.update(lambda x: net(x).squeeze(1).square(), rows)
                    if run.step == stop:
                        stop = None
                        os.kill(os.getpid(), signal.SIGTERM)
            return net.weight.detach().clone()

    whole = go(tmp_path / "whole")
    for stop in range(1, 11):
        with pytest.raises(SystemExit):
            go(tmp_path / str(stop), stop)
        assert torch.equal(go(tmp_path / str(stop)), whole), stop


LEAVES_BETWEEN_UPDATES = """
    import os, sys
    from pathlib import Path
    import torch, truestep as ts
    from torch import nn

    num_sources, each = int(os.environ["SOURCES"]), int(os.environ["EACH"])
    at = tuple(map(int, os.environ["LEAVES"].split()))
    rows = torch.arange(24.0).reshape(12, 2) / 24
    run = ts.Run("run", seed=0, progress=False, doctor=False, saving=ts.Saving(every_steps=1, background=False))
    net = run.learner(nn.Linear(2, 1), lambda p: torch.optim.Adam(p, lr=0.1))
    sources = [run.data(rows + number, batch_size=4, shuffle=True) for number in range(num_sources)]
    bodies = 0
    for _ in run.epochs(2):
        for batches in zip(*map(run.batches, sources)):
            bodies, updates = bodies + 1, 0
            for batch in batches * each:
                net.update(lambda rows: net(rows).squeeze(1).square(), batch)
                updates += 1
                if (bodies, updates) == at:
                    sys.exit(3)
    torch.save(net.state_dict(), "end.pt")
"""


@pytest.mark.sliced(6)
@pytest.mark.parametrize(
    ("sources", "each", "leaves"),
    [
        (2, 1, ["1 1"]),
        (3, 1, ["1 2"]),
        (2, 2, ["3 1"]),
        (1, 2, ["2 1", "1 1"]),
        (2, 2, ["3 2", "1 3"]),
        (3, 1, ["1 1", "2 1", "1 2"]),
    ],
)
def test_a_script_that_leaves_between_the_updates_of_one_body_does_all_of_it_again(
    tmp_path, sources, each, leaves
):
    """At the end of a process nobody tells `break` behind a body from an exit in it: how many updates one has tells."""
    (tmp_path / "train.py").write_text(textwrap.dedent(LEAVES_BETWEEN_UPDATES))

    def start(folder, at):
        folder.mkdir(exist_ok=True)
        settings = {"SOURCES": str(sources), "EACH": str(each), "LEAVES": at}
        return warm.run(tmp_path / "train.py", cwd=folder, env=os.environ | settings)

    assert start(tmp_path / "whole", "0 0").returncode == 0
    assert [start(tmp_path / "left", at).returncode for at in [*leaves, "0 0"]] == [*[3] * len(leaves), 0]
    ends = [torch.load(tmp_path / name / "end.pt")["weight"] for name in ("whole", "left")]
    assert torch.equal(*ends)
