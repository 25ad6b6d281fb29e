# SPDX-License-Identifier: Apache-2.0
"""A mean over outputs (n, 1) and targets (n,) compares each output with the targets of all: it is told, and nothing else is."""

import warnings
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import truestep as ts

SIZE = 4
TOLD = "compares each of the 4 outputs with the targets of all 4 examples"

MEANS = {
    "square": lambda a, b: ((a - b) ** 2).mean(),
    "absolute": lambda a, b: (b - a).abs().mean(),
    "product": lambda a, b: ((a - b) * (a - b)).mean() / 2,
    "root": lambda a, b: (a - b).pow(2).mean().sqrt(),
    "with a penalty": lambda a, b: torch.mean((a - b) ** 2) + 0.1 * a.square().mean(),
    "weighted": lambda a, b: (2.0 * (a - b).square()).mean(),
}
TORCH = {
    "mse_loss": F.mse_loss,
    "l1_loss": F.l1_loss,
    "smooth_l1_loss": F.smooth_l1_loss,
}
HEADS = {
    "linear": lambda: nn.Linear(3, 1),
    "sigmoid": lambda: nn.Sequential(nn.Linear(3, 1), nn.Sigmoid()),
    "no bias": lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1, bias=False)),
}


def said_of(loss, tmp_path, head=HEADS["linear"], size=SIZE):
    """Return what an update says of a loss."""
    run = ts.Run(tmp_path, quiet=True, progress=False, doctor=False)
    net = run.learner(head(), lambda p: torch.optim.SGD(p, lr=0.1))
    x = torch.linspace(0, 1, 3 * SIZE).view(SIZE, 3)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for batch in run.batches(run.data((x, x.sum(1)), batch_size=size)):
            net.update(lambda batch: loss(net(batch[0]), batch[1]), batch)
    run.close()
    return "\n".join(str(each.message) for each in found)


@pytest.mark.parametrize("head", HEADS)
def test_a_mean_of_all_against_all_is_told(head, tmp_path):
    for name, mean in {**MEANS, **TORCH}.items():
        assert TOLD in said_of(mean, tmp_path / name, HEADS[head]), name


ROWS = {
    "of squares": lambda a, b: (a - b).square().mean(1),
    "of torch's": lambda a, b: F.mse_loss(a, b, reduction="none").mean(dim=1),
    "of sums": lambda a, b: (b - a).abs().sum(-1),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_mean_of_each_row_of_all_against_all_is_told(name, tmp_path):
    assert TOLD in said_of(ROWS[name], tmp_path / "wrong")
    assert TOLD not in said_of(lambda a, b: ROWS[name](a, b[:, None]), tmp_path / "right")


def test_a_mean_of_each_against_its_own_is_not(tmp_path):
    def square(outputs, targets):
        return outputs.squeeze(1), targets

    def columns(outputs, targets):
        return outputs, targets[:, None]

    for (name, mean), pair in product({**MEANS, **TORCH}.items(), (square, columns)):
        said = said_of(
            lambda a, b, mean=mean, pair=pair: mean(*pair(a, b)), tmp_path / f"{name} {pair.__name__}"
        )
        assert TOLD not in said, name


@pytest.mark.parametrize(
    "loss",
    [
        lambda a, b: (a - a.T).square().mean() + (a.squeeze(1) - b).square().mean(),  # pairs of outputs
        lambda a, b: (a.squeeze(1)[:, None] - b).abs().mean(),  # on purpose: the axis is made there
        lambda a, b: torch.cdist(a, b[:, None]).mean(),
        lambda a, b: (a * b).logsumexp(0).mean(),
        lambda a, b: a.squeeze(1).square(),
    ],
)
def test_pairs_on_purpose_are_not_told(loss, tmp_path):
    assert TOLD not in said_of(loss, tmp_path)


def test_a_batch_of_one_has_no_other(tmp_path):
    assert said_of(MEANS["square"], tmp_path, size=1) == ""


COLUMNS = {
    "difference": lambda a, b: (a - b).square(),
    "the other way round": lambda a, b: 0.5 * (b - a).abs(),
    "weighted": lambda a, b: torch.tensor([1.0, 2.0, 3.0, 4.0]) * (a - b).pow(2),
    "of torch's": lambda a, b: F.mse_loss(a, b, reduction="none"),
    "ratio": lambda a, b: -(a.exp() * b),
    "clipped": lambda a, b: -torch.min(a.exp() * b, a.exp().clamp(0.8, 1.2) * b),
}


def refused(loss, tmp_path):
    run = ts.Run(tmp_path, quiet=True, progress=False, doctor=False)
    net = run.learner(HEADS["linear"](), lambda p: torch.optim.SGD(p, lr=0.1))
    x = torch.linspace(0, 1, 3 * SIZE).view(SIZE, 3)
    with pytest.raises(ts.LossError) as told:
        net.update(lambda batch: loss(net(batch[0]), batch[1]), (x, x.sum(1)))
    run.close()
    return str(told.value)


@pytest.mark.filterwarnings("ignore:Using a (input|target) size:UserWarning")  # torch's own
@pytest.mark.parametrize("name", COLUMNS)
def test_a_table_of_all_against_all_names_the_side_with_the_axis_too_many(name, tmp_path):
    loss = COLUMNS[name]
    outputs = refused(loss, tmp_path / "outputs")
    assert "outputs of shape (4, 1) and targets of shape (4,) were" in outputs
    assert "compared: outputs.squeeze(1)." in outputs
    targets = refused(lambda a, b: loss(a[:, 0], b[:, None]), tmp_path / "targets")
    assert "outputs of shape (4,) and targets of shape (4, 1) were" in targets
    assert "compared: targets.squeeze(1)." in targets
    said_of(lambda a, b: loss(a[:, 0], b), tmp_path / "right")


@pytest.mark.parametrize(
    "loss",
    [
        lambda a, b: (a[:, 0] - a).square(),  # both sides carry a gradient
        lambda a, b: (a - a.T + b).square(),
        lambda a, b: a[:, 0].expand(4, 4) - b[:, None] + a,
        lambda a, b: F.linear(a, torch.ones(4, 1, requires_grad=True)),  # no broadcast at all
    ],
)
def test_where_the_side_is_not_known_both_are_named(loss, tmp_path):
    assert "outputs.squeeze(1) or targets.squeeze(1)" in refused(loss, tmp_path)
