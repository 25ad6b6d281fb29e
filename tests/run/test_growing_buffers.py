# SPDX-License-Identifier: Apache-2.0
"""A buffer that grows in training is resumed in the size that it had; layers of another size are still refused."""

import os
import signal
import warnings

import pytest
import torch
from torch import nn

import truestep as ts

ROWS = torch.arange(36.0).reshape(12, 3) / 36


class Queue(nn.Module):
    """Keeps the newest rows, as a contrastive loss does; it begins empty."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 1)
        self.register_buffer("queue", torch.zeros(0, 3))

    def forward(self, rows):
        self.queue = torch.cat([self.queue, rows.detach()])[-8:]
        return self.layer(rows).squeeze(1) - self.layer(self.queue).mean()


def go(directory, stop=None, ema=None, module=Queue):
    with ts.Run(directory, seed=0, progress=False, quiet=True, doctor=False) as run:
        net = run.learner(nn.Sequential(module()), lambda p: torch.optim.SGD(p, lr=0.1), ema=ema)
        source = run.data(ROWS, batch_size=3, shuffle=True)
        for _ in run.epochs(2):
            for rows in run.batches(source):
                net.update(lambda x: net(x).square().reshape(len(x), -1).sum(1), rows)
                if run.step == stop:
                    os.kill(os.getpid(), signal.SIGTERM)
        return [each.detach().clone() for each in net.module.state_dict().values()]


@pytest.mark.parametrize("ema", [None, ts.EMA(decay=0.9)])
def test_a_buffer_that_grew_is_resumed_in_its_size(tmp_path, ema):
    whole = go(tmp_path / "whole", ema=ema)
    for stop in (1, 2, 6):
        with pytest.raises(SystemExit):
            go(tmp_path / str(stop), stop, ema)
        again = go(tmp_path / str(stop), ema=ema)
        assert all(map(torch.equal, again, whole)), stop


def quantised():
    """A layer with observers of quantisation, which learn their size from the first batch."""
    layer = nn.Sequential(nn.Linear(3, 2), nn.Flatten(0)).train()
    layer.qconfig = torch.ao.quantization.get_default_qat_qconfig("x86")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch moves this to a package of its own
        return torch.ao.quantization.prepare_qat(layer)


def test_observers_of_quantisation_are_resumed(tmp_path):
    whole = go(tmp_path / "whole", module=quantised)
    with pytest.raises(SystemExit):
        go(tmp_path / "run", 3, module=quantised)
    assert all(map(torch.equal, go(tmp_path / "run", module=quantised), whole))


@pytest.mark.parametrize("other", [nn.Linear(3, 2), nn.BatchNorm1d(4, affine=False)])
def test_layers_of_another_size_are_still_refused(tmp_path, other):
    def start(layer):
        run = ts.Run(tmp_path / "run", seed=0, progress=False, quiet=True, doctor=False)
        run.learner(nn.ModuleList([nn.Linear(1, 1), layer]), lambda p: torch.optim.SGD(p, lr=0.1))
        with run:
            run.session.starting()
            run.state["moved"] = True

    start(nn.Linear(3, 1) if isinstance(other, nn.Linear) else nn.BatchNorm1d(3, affine=False))
    with pytest.raises(ts.CheckpointError, match="reshaped"):
        start(other)
