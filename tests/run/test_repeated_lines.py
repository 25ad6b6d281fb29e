# SPDX-License-Identifier: Apache-2.0
"""What the lines of an epoch above its batches do to weights is done again where the epoch is gone on with, and is told of."""

from contextlib import suppress

import pytest
import torch
from torch import nn

import truestep as ts


def filled(net):
    with torch.no_grad():
        net.module[0].weight.fill_(0.3)


def drawn_anew(net):
    net.module[0].reset_parameters()


def replaced(net):
    net.module[0].weight.data = torch.ones(3, 3)


def loaded(net):
    net.module[1].load_state_dict({"weight": torch.zeros(1, 3), "bias": torch.ones(1)})


def initialised(net):
    nn.init.orthogonal_(net.module[0].weight)


def scaled(net):
    with torch.no_grad():
        for each in net.parameters():
            each.mul_(0.5)


def frozen(net):
    net.module[0].requires_grad_(False)


def looked_at(net):
    with net.averaged():
        net.evaluate(lambda rows: net(rows)[:, 0], [torch.ones(2, 3)])


def slower(net):
    for group in net.optimizers[0].param_groups:
        group["lr"] = 0.01


def nothing(net):
    pass


CHANGING = [filled, drawn_anew, replaced, loaded, initialised, scaled]


def train(folder, above, stop=0, more=None):
    with ts.Run(
        folder, progress=False, doctor=False, seed=0, saving=ts.Saving(every_steps=1, background=False)
    ) as run:
        model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1), *filter(None, [more]))
        net = run.learner(model, lambda p: torch.optim.SGD(p, lr=0.1), ema=ts.EMA())
        rows = run.data(torch.randn(6, 3), batch_size=2)
        for epoch in run.epochs(3):
            if epoch == 1:
                above(net)
            for batch in run.batches(rows):
                net.update(lambda rows: net(rows).square()[:, 0], batch)
                if run.step == stop:
                    raise EOFError


@pytest.mark.parametrize("above", [*CHANGING, frozen, looked_at, slower, nothing])
def test_weights_that_are_changed_again_are_told_of(tmp_path, capfd, above):
    with suppress(EOFError):
        train(tmp_path / "run", above, stop=5)
    assert "run again" not in capfd.readouterr().err
    train(tmp_path / "run", above)
    told = capfd.readouterr().err
    assert ("above run.batches run again" in told) == (above in CHANGING), told


@pytest.mark.parametrize("stop", [3, 7])
def test_nothing_is_said_of_an_epoch_that_does_not_do_it_again(tmp_path, capfd, stop):
    with suppress(EOFError):
        train(tmp_path / "run", filled, stop=stop)
    train(tmp_path / "run", filled)
    told = capfd.readouterr().err
    assert "going on from" in told
    assert "run again" not in told


class Frozen(nn.Module):
    """A layer with weights that nothing trains, of types whose numbers torch adds up or not."""

    def __init__(self, dtype):
        super().__init__()
        self.kept = nn.Parameter(torch.ones(3).to(dtype), requires_grad=False)

    def forward(self, rows):
        return rows


@pytest.mark.parametrize(
    "dtype", [torch.float8_e4m3fn, torch.bool, torch.uint8, torch.bfloat16, torch.complex64]
)
def test_a_run_goes_on_whatever_types_its_weights_have(tmp_path, capfd, dtype):
    with suppress(EOFError):
        train(tmp_path / "run", nothing, stop=5, more=Frozen(dtype))
    train(tmp_path / "run", filled, more=Frozen(dtype))
    assert "values into sequential.0.weight: this is another training" in capfd.readouterr().err
