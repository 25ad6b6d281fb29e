# SPDX-License-Identifier: Apache-2.0
"""`ts.relations` leaves everything as it was: weights, gradients, buffers, modes, hooks, random states, the batch."""

import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import truestep as ts

from .drawn import training
from .test_right_losses import BY_HAND, OF_ANOTHER_KIND, drawn_habits


def state_of(modules, batch):
    """Return everything of modules and a batch that could change, as values that can be compared."""
    found = {}
    for place, module in enumerate(modules):
        for name, part in module.named_modules():
            key = f"{place} {name}"
            found[key] = part.training, sorted(vars(part)), [len(each) for each in hooks_of(part)]
            for kind in ("_parameters", "_buffers"):
                for own, each in getattr(part, kind).items():
                    found[f"{key} {own}"] = (
                        None if each is None else (id(each), bits(each), each.requires_grad, each._version)
                    )
        for name, each in module.named_parameters():
            found[f"{place} {name} gradient"] = (
                None if each.grad is None else (id(each.grad), bits(each.grad))
            )
    found["torch"], found["python"] = bits(torch.get_rng_state()), random.getstate()
    found["numpy"] = str(np.random.get_state())
    found["batch"] = [
        bits(each) for each in torch.utils._pytree.tree_leaves(batch) if isinstance(each, torch.Tensor)
    ]
    found["global hooks"] = [len(each) for each in global_hooks()]
    found["mode"] = torch.is_grad_enabled()
    return found


def bits(tensor):
    tensor = tensor.detach().to_dense().contiguous().flatten()
    return str(tensor.dtype), tensor.view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def hooks_of(module):
    return [each for name, each in sorted(vars(module).items()) if "hooks" in name and isinstance(each, dict)]


def global_hooks():
    from torch.nn.modules import module

    return [
        each
        for name, each in sorted(vars(module).items())
        if name.startswith("_global") and isinstance(each, dict)
    ]


def trained(loss, batch, model):
    """Leave gradients, moved buffers and a hook before the relations are tried."""
    values = loss(batch)
    values = values.values if hasattr(values, "weights") else values
    values.mean().backward()
    model.register_forward_hook(lambda *_: None)


@pytest.mark.sliced(3)
@pytest.mark.parametrize("number", range(100, 108))
def test_nothing_of_a_drawn_program_changes(number, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = drawn_habits(number)
    if kind := OF_ANOTHER_KIND & set(names):
        pytest.skip(f"{kind} is for the whole program")
    loss, batch, model = training(*names)
    trained(loss, batch, model)
    before = state_of([model], batch)
    ts.relations(loss, batch, trains=model)
    assert state_of([model], batch) == before


@pytest.mark.sliced(3)
@pytest.mark.parametrize("make", BY_HAND[::3])
def test_nothing_of_a_loss_by_hand_changes(make):
    torch.manual_seed(4)
    loss, batch, module, options = make()
    trained(loss, batch, module)
    before = state_of([module], batch)
    ts.relations(loss, batch, trains=module.parameters(), **options)
    assert state_of([module], batch) == before


def test_what_the_loss_itself_changes_is_put_back():
    """A teacher that follows, modes, requires_grad, counters and gradients of the loss's own."""
    net, teacher = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 1)), nn.BatchNorm1d(4)
    net.calls = 0

    def loss(batch):
        net.calls += 1
        net[0].requires_grad_(True)
        net[1].eval()
        batch.mul_(2)
        for each in teacher.parameters():
            each.data.lerp_(torch.ones_like(each), 0.5)
        net[2].bias.grad = torch.ones(1)
        random.random(), np.random.rand(), torch.rand(1)
        return (net(teacher(batch)) ** 2).mean()

    net[0].requires_grad_(False)
    batch = torch.randn(6, 4)
    before = state_of([net, teacher], batch)
    ts.relations(loss, batch, trains=net)
    assert state_of([net, teacher], batch) == before
    assert net.calls == 0


def test_a_loss_that_raises_leaves_everything(monkeypatch):
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    calls = []

    def loss(batch):
        out = net(batch).square().mean()
        calls.append(1)
        if len(calls) > 9:
            raise KeyError("late")
        return out

    batch = torch.randn(6, 4)
    before = state_of([net], batch)
    with pytest.raises(KeyError, match="late"):
        ts.relations(loss, batch, trains=net)
    assert state_of([net], batch) == before


def test_a_graph_of_the_users_can_still_be_differentiated():
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    x, y = torch.randn(6, 4), torch.arange(6) % 2
    kept = F.cross_entropy(net(x), y)
    ts.relations(lambda batch: F.cross_entropy(net(batch[0]), batch[1]), (x, y), trains=net)
    kept.backward()


def test_under_no_grad_and_inference_of_the_caller():
    net = nn.Linear(4, 2)
    with torch.no_grad():
        found = ts.relations(lambda batch: net(batch).square().mean(), torch.randn(6, 4), trains=net)
        assert not torch.is_grad_enabled()
    found.check()
