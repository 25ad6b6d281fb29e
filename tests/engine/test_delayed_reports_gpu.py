# SPDX-License-Identifier: Apache-2.0
"""On a GPU: no synchronisation in a step, what is skipped there, and the law of Split beside the CPU's result."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import truestep as ts
from truestep.engine.shared_context import LearnerContext
from truestep.engine.step import receive_update_report

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
    context = LearnerContext(torch.device("cuda", 0), nonfinite=policy)
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
    receive_update_report(learner._parts)
    assert learner._parts.counters.updates + learner._parts.counters.skipped == 15
    assert math.isfinite(float(update.loss))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("first", [True, False])
def test_a_skip_on_the_device_leaves_everything_as_it_was(make_learner, snapshot, optimizer, first):
    learner = new(make_learner, optimizer=optimizer, policy="skip")
    data = batches(3)
    if not first:
        learner.update(loss_of(learner), data[0])
    before = {name: tensor.clone() for name, tensor in learner.state_dict().items()}
    averages = {name: tensor.clone() for name, tensor in learner._parts.average.state_dict().items()}
    bad = (data[1][0] * math.nan, data[1][1])
    assert bool(learner.update(loss_of(learner), bad).skipped)
    for name, tensor in learner.state_dict().items():
        assert torch.equal(before[name], tensor), name
    for name, tensor in learner._parts.average.state_dict().items():
        assert torch.equal(averages[name], tensor), name
    receive_update_report(learner._parts)
    assert (learner._parts.counters.skipped, learner._parts.counters.updates) == (1, 0 if first else 1)
    for _ in range(5):
        learner.update(loss_of(learner), data[2])
    assert all(bool((p.abs() < 100).all()) for p in learner._parts.weights.parameters)


def test_a_batch_without_weight_is_skipped_and_no_error(make_learner):
    learner = new(make_learner)
    images, labels = batches(1)[0]
    assert bool(learner.update(loss_of(learner), (images, labels * 0)).skipped)
    receive_update_report(learner._parts)
    assert (learner._parts.counters.skipped, learner._parts.counters.updates) == (1, 0)


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
        gradients.append([p.grad for p in learner._parts.weights.parameters])
    for a, b in zip(*gradients, strict=True):
        assert torch.allclose(a, b, rtol=1e-11, atol=1e-14)


def test_a_batch_on_the_host_is_brought_to_the_device(make_learner):
    learner = new(make_learner)
    images, labels = batches(1)[0]
    assert not bool(learner.update(loss_of(learner), (images.cpu(), labels.cpu())).skipped)


class Queue(nn.Module):
    """A count, and a queue that is assigned."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 1)
        self.count = nn.Buffer(torch.zeros(()))
        self.queue = nn.Buffer(torch.zeros(16, 8))

    def forward(self, x):
        self.count += 1
        self.queue = torch.cat([self.queue[len(x) :], x.detach()])
        return self.linear(x).squeeze(1)


@pytest.mark.parametrize("policy", ["raise", "skip"])
def test_buffers_of_a_batch_that_was_left_out_are_as_they_were(make_learner, policy):
    net = make_learner(
        Queue(),
        OPTIMIZERS["adamw"],
        LearnerContext(torch.device("cuda", 0), nonfinite=policy),
        precision="float32",
    )
    good = torch.ones(4, 8, device="cuda")
    for _ in range(3):
        net.update(net, good)
    before = net.module.queue.clone()
    net.update(net, good * math.nan)
    assert torch.equal(net.module.queue, before)
    assert float(net.module.count) == 3
    if policy == "raise":
        with pytest.raises(ts.NonFiniteError):
            receive_update_report(net._parts)


def test_negative_weights_are_told_late_and_nothing_has_moved(make_learner):
    net = new(make_learner)
    batch = torch.ones(4, 8, device="cuda")
    before = net.module[0].weight.detach().clone()
    net.update(lambda x: ts.weighted(net(x).square().mean(1), -torch.ones(4, device="cuda")), batch)
    assert torch.equal(net.module[0].weight, before)
    with pytest.raises(ts.LossError, match="negative weights"):
        receive_update_report(net._parts)


def test_rows_drawn_on_a_device_do_not_depend_on_the_split(make_learner):
    def rows(micro_batch):
        net, seen = new(make_learner), []
        net.module.eval()

        def loss(x):
            seen.append(torch.cat([ts.randn(x.shape, device="cuda"), ts.rand(len(x), 3, device="cuda")], 1))
            return net(x).square().mean(1)

        net.update(loss, torch.ones(700, 8, device="cuda"), micro_batch=micro_batch)
        return torch.cat(seen)

    assert all(torch.equal(rows(None), rows(size)) for size in (1, 33, 512))
