# SPDX-License-Identifier: Apache-2.0
"""Names that a program takes from a set come in another order in each process, by its hash seed; nothing else differs."""

import pytest
import torch
from support import ranks
from torch import nn
from torch.utils.data import Dataset

import truestep as ts

ROWS = torch.arange(80.0).reshape(20, 4) / 80


def samples(names):
    """Return samples with their parts in an order."""
    return [
        {name: {"x": row, "y": row.sum(), "at": number}[name] for name in names}
        for number, row in enumerate(ROWS)
    ]


class Samples(Dataset):
    """The samples by number."""

    def __init__(self, names):
        self.samples = samples(names)

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return self.samples[index]


def columns(names):
    """Return all rows of each name."""
    return {name: torch.stack([torch.as_tensor(each[name]) for each in samples(names)]) for name in names}


def train(folder, data, stop=None):
    """Train to the end, or leave behind a step; return the weights."""
    with ts.Run(folder, seed=1, quiet=True, saving=ts.Saving(every_steps=1, background=False)) as run:
        torch.manual_seed(1)
        net = run.learner(nn.Linear(4, 1), lambda p: torch.optim.SGD(p, lr=0.1))
        batches = run.data(data, batch_size=4)
        for _ in run.epochs(2):
            for batch in run.batches(batches):
                net.update(lambda b: (net(b["x"]).squeeze(1) - b["y"]) ** 2, batch)
                if run.step == stop:
                    raise KeyboardInterrupt
    return net.weight.detach().clone()


@pytest.mark.parametrize("made", [lambda names: lambda: iter(samples(names)), Samples, columns])
def test_a_run_goes_on_where_the_parts_of_its_samples_come_in_another_order(made, tmp_path):
    whole = train(tmp_path / "whole", made(["x", "y", "at"]))
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "run", made(["x", "y", "at"]), stop=3)
    assert torch.equal(train(tmp_path / "run", made(["at", "y", "x"])), whole)


PROGRAM = """
import os, sys
import torch
import truestep as ts
rank = int(os.environ["RANK"])
rows = torch.arange(80.0).reshape(20, 4) / 80
names = ["x", "y"] if rank else ["y", "x"]
def share():
    for row in rows[rank::2] if sys.argv[2] == "share" else rows:
        yield {name: {"x": row, "y": row.sum()}[name] for name in names}
with ts.Run(sys.argv[1], seed=1, quiet=True) as run:
    net = run.learner(torch.nn.Linear(4, 1), lambda p: torch.optim.SGD(p, lr=0.1))
    data = run.data(share, batch_size=4, per_rank=sys.argv[2] == "share")
    for batch in run.batches(data):
        net.update(lambda b: (net(b["x"]).squeeze(1) - b["y"]) ** 2, batch)
        run.log(**{name: 1.0 for name in names})
"""


@pytest.mark.parametrize("how", ["share", "whole"])
def test_ranks_train_where_names_come_in_another_order_on_each(how, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, "utf-8")
    for each in ranks.on_ranks(program, tmp_path / "run", how):
        assert each.status == 0, each.error
