# SPDX-License-Identifier: Apache-2.0
"""On a GPU: no synchronisation in a step, what is skipped there, and the law of Split beside the CPU's result."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import truestep as ts
from truestep.engine.context import Context

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

OPTIMIZERS = {
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
}


def new(make_learner, precision="float32", optimizer="adamw", policy="raise", **options):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.GELU(), nn.Linear(32, 4))
    context = Context(torch.device("cuda", 0), nonfinite=policy)
    schedule = lambda o: ts.warmup_constant(o, warmup_steps=50)
    return make_learner(
        module,
        OPTIMIZERS[optimizer],
        context,
        precision=precision,
        ema=ts.EMA(),
        schedule=schedule,
        **options,
    )


def batches(number, size=16):
    draw = torch.Generator().manual_seed(0)
    return [
        (torch.randn(size, 8, generator=draw).cuda(), torch.randint(4, (size,), generator=draw).cuda())
        for _ in range(number)
    ]


def loss_of(net):
    return lambda b: ts.weighted(F.cross_entropy(net(b[0]), b[1], reduction="none"), (b[1] > 0).float())


@pytest.mark.parametrize("precision", ["float32", "bf16-mixed", "fp16-mixed", "bf16", "O2"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("clip", [None, ts.ClipNorm(1.0), ts.ClipValue(0.1), ts.ClipAdaptive()])
def test_a_step_never_waits_for_the_device(make_learner, precision, optimizer, clip):
    learner = new(make_learner, precision, optimizer, clip=clip)
    data = batches(3) * 4
    for batch in data[:3]:
        learner.update(loss_of(learner), batch)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for batch in data:
            update = learner.update(loss_of(learner), batch)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    learner.late.settle()
    assert learner.updates + learner.skipped == 15
    assert math.isfinite(float(update.loss))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("first", [True, False])
def test_a_skip_on_the_device_leaves_everything_as_it_was(make_learner, snapshot, optimizer, first):
    learner = new(make_learner, optimizer=optimizer, policy="skip")
    data = batches(3)
    if not first:
        learner.update(loss_of(learner), data[0])
    before = {name: tensor.clone() for name, tensor in learner.state_dict().items()}
    averages = {name: tensor.clone() for name, tensor in learner.average.state_dict().items()}
    bad = (data[1][0] * math.nan, data[1][1])
    assert bool(learner.update(loss_of(learner), bad).skipped)
    for name, tensor in learner.state_dict().items():
        assert torch.equal(before[name], tensor), name
    for name, tensor in learner.average.state_dict().items():
        assert torch.equal(averages[name], tensor), name
    learner.late.settle()
    assert (learner.skipped, learner.updates) == (1, 0 if first else 1)
    for _ in range(5):
        learner.update(loss_of(learner), data[2])
    assert all(bool((p.abs() < 100).all()) for p in learner.weights)


def test_a_batch_without_weight_is_skipped_and_no_error(make_learner):
    learner = new(make_learner)
    images, labels = batches(1)[0]
    assert bool(learner.update(loss_of(learner), (images, labels * 0)).skipped)
    learner.late.settle()
    assert (learner.skipped, learner.updates) == (1, 0)


def test_an_error_comes_with_the_next_update(make_learner):
    learner = new(make_learner)
    images, labels = batches(1)[0]
    learner.update(loss_of(learner), (images * math.nan, labels))
    with pytest.raises(ts.NonFiniteError):
        learner.update(loss_of(learner), (images, labels))


@pytest.mark.parametrize("micro_batch", [1, 5])
def test_a_split_update_is_the_whole_one(make_learner, micro_batch):
    gradients = []
    for size in (None, micro_batch):
        learner = new(make_learner, "float64")
        learner.module[1].eval()
        learner.update(loss_of(learner), batches(1)[0], micro_batch=size)
        gradients.append([p.grad for p in learner.weights])
    for a, b in zip(*gradients, strict=True):
        assert torch.allclose(a, b, rtol=1e-11, atol=1e-14)


def test_a_batch_on_the_host_is_brought_to_the_device(make_learner):
    learner = new(make_learner)
    images, labels = batches(1)[0]
    assert not bool(learner.update(loss_of(learner), (images.cpu(), labels.cpu())).skipped)
