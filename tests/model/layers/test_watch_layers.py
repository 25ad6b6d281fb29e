# SPDX-License-Identifier: Apache-2.0
"""Layers that die, saturate, explode or vanish are named; healthy ones are not; the training does not notice."""

import math

import pytest
import torch
import torch.nn.functional as F
from support.layer_plants import DEAD, EXPLODING, NETS, PLANTS, SATURATED, VANISHING, batch, plant
from torch import nn

import truestep as ts
from truestep.model.layers import interval as interval_module
from truestep.model.layers.interval import AdaptiveLookInterval


def trained(net, steps, *, every, planted=None, at=0, optimizer=None):
    """Train by hand and return the watch."""
    generator = torch.Generator().manual_seed(1)
    optimizer = (optimizer or (lambda p: torch.optim.SGD(p, lr=1e-12)))(net.parameters())
    with ts.watch_layers(net, every=every) as watch:
        for step in range(steps):
            if planted is not None and step == at:
                plant(net, planted)
            images, labels = batch(generator)
            optimizer.zero_grad()
            F.cross_entropy(net(images), labels).backward()
            optimizer.step()
    return watch


def name_of(each):
    return f"{each.net}-{each.fault}-{each.layer}"


def check(planted, *, at, every=1, steps=12):
    torch.manual_seed(0)
    watch = trained(NETS[planted.net](), at + steps, every=every, planted=planted, at=at)
    named = {(each.layer, each.fault) for each in watch.findings}
    assert any((layer, planted.fault) in named for layer in planted.named), named
    return watch


@pytest.mark.parametrize(
    "planted", [DEAD[1], DEAD[4], DEAD[-1], SATURATED[0], EXPLODING[2], VANISHING[0]], ids=name_of
)
def test_a_planted_fault_is_named(planted):
    watch = check(planted, at=3)
    [finding] = [
        each for each in watch.findings if each.layer in planted.named and each.fault == planted.fault
    ]
    assert "batches looked at among the last 8" in finding.message
    assert "do not help" in finding.advice
    assert finding.message in str(watch)


@pytest.mark.slow
@pytest.mark.parametrize("at", [0, 40])
@pytest.mark.parametrize("planted", PLANTS, ids=name_of)
def test_every_planted_fault_is_named(planted, at):
    check(planted, at=at)


OPTIMIZERS = {
    "Adam": lambda p: torch.optim.Adam(p, lr=1e-3),
    "SGD": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
}


@pytest.mark.parametrize("name", ["relu", "functions"])
def test_a_healthy_network_is_let_alone(name):
    torch.manual_seed(0)
    assert trained(NETS[name](), 60, every=4, optimizer=OPTIMIZERS["Adam"]).findings == []


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", list(OPTIMIZERS))
@pytest.mark.parametrize("name", list(NETS))
def test_ten_healthy_networks_are_let_alone_for_2000_steps(name, optimizer):
    torch.manual_seed(0)
    watch = trained(NETS[name](), 2000, every=8, optimizer=OPTIMIZERS[optimizer])
    assert watch.findings == []
    assert len(watch.looks) > 100


def test_a_layer_that_dies_while_it_trains_is_named_with_its_share():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 50), nn.ReLU(), nn.Linear(50, 4))
    with torch.no_grad():
        net[0].bias[:47] = -1000.0
    watch = trained(nn.Sequential(nn.Flatten(), net), 12, every=1)
    assert [each.message for each in watch.findings] == [
        "1.1: 94% of its units were zero in each of the 8 batches looked at among the last 8"
    ]


def test_what_is_measured_is_so():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
    inputs = torch.randn(6, 3)
    with ts.watch_layers(net, every=1) as watch:
        before = net[0].weight.detach().clone()
        output = net(inputs)
        output.retain_grad()
        output.square().sum().backward()
        gradient = net[0].weight.grad.clone()
        torch.optim.SGD(net.parameters(), lr=0.1).step()
    [look] = watch.looks
    first, act, last = look.layers
    hidden = F.linear(inputs, before, net[0].bias + 0.1 * net[0].bias.grad).detach()
    assert (first.mean, first.spread) == pytest.approx(
        (float(hidden.mean()), float(hidden.std(correction=0))), rel=1e-4
    )
    assert first.gradient == pytest.approx(float(gradient.square().mean().sqrt()), rel=1e-5)
    assert first.update == pytest.approx(0.1 * first.gradient, rel=1e-3)
    assert first.weight == pytest.approx(float(net[0].weight.detach().square().mean().sqrt()), rel=1e-5)
    assert act.saturated == pytest.approx(float((hidden.tanh().abs() > 0.97).float().mean()))
    assert last.output_gradient == pytest.approx(float(output.grad.square().mean().sqrt()), rel=1e-5)
    assert sum(last.counts) == 12
    assert act.gradient is None


class StepClock:
    """A clock that the test moves on."""

    def __init__(self):
        self.now = 0.0

    def perf_counter(self):
        return self.now


@pytest.mark.parametrize(("look", "step"), [(0.001, 0.01), (0.02, 0.001), (0.005, 0.0005)])
def test_by_default_looks_take_at_most_a_hundredth_of_the_time(monkeypatch, look, step):
    clock = StepClock()
    monkeypatch.setattr(interval_module, "time", clock)
    interval, looks = AdaptiveLookInterval("auto", 8), []
    for update in range(1, 20_001):
        clock.now += step
        if interval.allows(update):
            assert update % 64 == 0
            interval.looked(update)
            looks.append(update)
            with interval.clock:
                clock.now += look
    assert interval.clock.seconds == pytest.approx(look * len(looks))
    assert interval.clock.seconds <= 0.01 * clock.now
    affordable = 0.01 * 20_000 * step / look
    assert len(looks) >= 0.9 * min(20_000 // 64, affordable) - 1
    assert interval.span == looks[-1] - looks[-8] + 64


def test_a_number_of_steps_is_kept_to_whatever_a_look_takes(monkeypatch):
    clock = StepClock()
    monkeypatch.setattr(interval_module, "time", clock)
    interval = AdaptiveLookInterval(2, 8)
    for update in range(1, 9):
        assert interval.allows(update) == (update % 2 == 0)
        with interval.clock:
            clock.now += 1.0


def test_what_the_hooks_take_is_counted():
    net = NETS["relu"]()
    watch = trained(net, 12, every=2)
    assert watch._looks.interval.clock.seconds > 0.0
    before = watch._looks.interval.clock.seconds
    with torch.no_grad():
        net(batch(torch.Generator().manual_seed(0))[0])
    assert watch._looks.interval.clock.seconds == before  # closed


def digest(net):
    return [tensor.clone() for tensor in net.state_dict().values()]


@pytest.mark.parametrize("name", ["convolutions", "attention", "recurrent"])
def test_the_training_does_not_notice(name):
    ended = []
    for every in (None, 2):
        torch.manual_seed(0)
        net = NETS[name]()
        optimizer = OPTIMIZERS["Adam"](net.parameters())
        watch = ts.watch_layers(net, every=every) if every else None
        generator = torch.Generator().manual_seed(1)
        for _ in range(6):
            images, labels = batch(generator)
            optimizer.zero_grad()
            F.cross_entropy(net(images), labels).backward()
            optimizer.step()
        if watch is not None:
            assert len(watch.looks) == 2
            watch.close()
        ended.append(digest(net))
        assert not any(m._forward_hooks or m._forward_pre_hooks for m in net.modules())
        # not even empty: torch's engine would go through it in every later backward
        assert all(p._post_accumulate_grad_hooks is p._backward_hooks is None for p in net.parameters())
    assert all(map(torch.equal, *ended))


def test_evaluations_recomputation_and_transforms_are_not_looked_at():
    from torch.utils.checkpoint import checkpoint

    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1))
    with ts.watch_layers(net, every=1) as watch:
        with torch.no_grad():
            net(torch.ones(2, 3))
        assert watch.looks == []
        checkpoint(net, torch.ones(2, 3), use_reentrant=False).sum().backward()
        torch.func.vmap(net)(torch.ones(2, 3))
    assert all(math.isfinite(layer.mean) for look in watch.looks for layer in look.layers)


class Odd(nn.Module):
    """Gives what can't be measured."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3, 3))

    def forward(self, x):
        return (x @ self.weight).to_sparse()


def test_what_can_not_be_measured_is_left_out():
    net, head = nn.Sequential(nn.Linear(3, 3), Odd()), nn.Linear(3, 1)
    with ts.watch_layers(net, every=1) as watch:
        head(net(torch.ones(2, 3)).to_dense()).sum().backward()
    assert "0" in {layer.name for layer in watch.looks[0].layers}


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("make", [torch.compile, lambda net: net.compile() or net])
def test_a_compiled_model_is_refused(make):
    with pytest.raises(ts.OptionError, match="compiled"):
        ts.watch_layers(make(nn.Linear(2, 2)))


@pytest.mark.parametrize("every", [0, -1, 1.5, True])
def test_what_is_no_number_of_steps_is_refused(every):
    with pytest.raises(ts.OptionError):
        ts.watch_layers(nn.Linear(2, 2), every=every)


CRITICS = {
    "convolutions": lambda: nn.Sequential(nn.Conv2d(1, 4, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(4, 1, 4)),
    "normalised": lambda: nn.Sequential(
        nn.Conv2d(1, 4, 4, 2, 1), nn.InstanceNorm2d(4, affine=True), nn.ReLU(), nn.Conv2d(4, 1, 4)
    ),
    "linear": lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 4), nn.Tanh(), nn.Linear(4, 1)),
}


@pytest.mark.parametrize("critic", CRITICS)
@pytest.mark.parametrize("first", [True, False], ids=["penalty first", "penalty last"])
def test_a_gradient_penalty_is_looked_at_like_any_other_loss(tmp_path, critic, first):
    ends = []
    for every in (0, 2):
        torch.manual_seed(0)
        with ts.Run(tmp_path / f"{every}", quiet=True, progress=False, watch_layers=every) as run:
            net = run.learner(CRITICS[critic](), lambda p: torch.optim.Adam(p, lr=1e-3))

            def loss(real, net=net):
                fake = torch.zeros_like(real)
                penalty = ts.gradient_penalty(net, real, fake) if first else 0
                gap = (net(fake) - net(real)).flatten()
                return gap + (penalty if first else ts.gradient_penalty(net, real, fake))

            real = torch.randn(8, 1, 8, 8)
            for _ in range(4):
                net.update(loss, real)
            ends.append([weight.clone() for weight in net.module.parameters()])
    assert all(map(torch.equal, *ends))


def test_what_can_not_be_measured_in_a_backward_does_not_end_the_training(monkeypatch):
    def fails(_gradient):
        raise RuntimeError("of a kind that nobody has seen")

    monkeypatch.setattr(
        "truestep.model.layers.look.sample_tensor_values",
        lambda values: fails(values) if not values.is_leaf else values.clone(),
    )
    trained(nn.Sequential(nn.Flatten(), nn.Linear(64, 4), nn.ReLU(), nn.Linear(4, 10)), 2, every=1)
