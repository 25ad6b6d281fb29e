# SPDX-License-Identifier: Apache-2.0
"""Programs that call `torch.set_default_dtype(torch.float64)`, or whose module is in float64, train in it."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import truestep as ts

DRAW = torch.Generator().manual_seed(0)
INPUTS = torch.randn(24, 5, dtype=torch.float64, generator=DRAW)
LABELS = (INPUTS.sum(1) > 0).long()


@pytest.fixture
def in_float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def new_net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 2))


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, fused=True)  # as the engine would choose


OPTIONS = {
    "nothing": {},
    "Adam": {"optimizer": lambda p: torch.optim.Adam(p, lr=0.01)},
    "fused": {"optimizer": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True)},
    "LBFGS": {"optimizer": lambda p: torch.optim.LBFGS(p, lr=0.1)},
    "clip by norm": {"clip": ts.ClipNorm(0.1)},
    "clip by value": {"clip": ts.ClipValue(0.1)},
    "adaptive clip": {"clip": ts.ClipAdaptive()},
    "average": {"ema": ts.EMA(decay=0.9)},
    "parts": {"micro_batch": 3},
    "schedule": {"schedule": lambda o: ts.warmup_cosine(o, warmup_steps=2, total_steps=8)},
    "skip": {"nonfinite": "skip"},
    "rollback": {"nonfinite": "rollback"},
    "bf16": {
        "precision": "bf16",
        "clip": ts.ClipNorm(0.1),
        "optimizer": lambda p: torch.optim.SGD(p, lr=0.1),
    },
}


@pytest.mark.sliced(3)
@pytest.mark.usefixtures("in_float64")
@pytest.mark.filterwarnings("ignore:Batch normalisation")
@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_works_where_the_default_dtype_is_float64(tmp_path, name):
    options = dict(OPTIONS[name])
    nonfinite, optimizer = options.pop("nonfinite", "raise"), options.pop("optimizer", sgd)
    with ts.Run(tmp_path / "run", nonfinite=nonfinite, progress=False, quiet=True) as run:
        net = run.learner(new_net(), optimizer, **options)
        kind = net.module[0].weight.dtype
        data = run.data((INPUTS.to(kind), LABELS), batch_size=7)

        def loss(batch):
            inputs, labels = batch
            values = F.cross_entropy(net(inputs + 0.1 * ts.randn(*inputs.shape, dtype=kind)).double(), labels,
                                     reduction="none")  # fmt: skip
            return ts.weighted(values, torch.rand(len(values)), right=(labels == 0).float())

        for _ in run.epochs(2):
            for batch in run.batches(data):
                assert net.update(loss, batch).loss.isfinite()
            run.log(right=net.evaluate(lambda b: (net(b[0]).argmax(1) == b[1]).float(), data))
    assert kind == (torch.bfloat16 if name == "bf16" else torch.float64)


@pytest.mark.parametrize("is_default", [True, False])
def test_it_ends_with_the_bits_of_the_loop_by_hand(request, tmp_path, is_default):
    if is_default:
        request.getfixturevalue("in_float64")
    by_hand = new_net().double()
    optimizer = sgd(by_hand.parameters())
    with ts.Run(tmp_path / "run", progress=False, quiet=True) as run:
        net = run.learner(new_net().double(), sgd)
        data = run.data((INPUTS, LABELS), batch_size=7)
        for _ in run.epochs(2):
            for inputs, labels in run.batches(data):
                optimizer.zero_grad()
                F.cross_entropy(by_hand(inputs), labels).backward()
                optimizer.step()
                net.update(lambda b: F.cross_entropy(net(b[0]), b[1], reduction="none"), (inputs, labels))
    for ours, theirs in zip(net.parameters(), by_hand.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    assert "float64" in str(run.choices())


def test_a_precision_that_is_said_is_used(tmp_path):
    with ts.Run(tmp_path / "run", precision="float32", progress=False, quiet=True) as run:
        assert run.learner(new_net().double(), sgd).module[0].weight.dtype == torch.float32
