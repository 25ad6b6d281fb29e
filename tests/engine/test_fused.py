# SPDX-License-Identifier: Apache-2.0
"""FusedStep and optimizer.step() are the same bits, whatever happens between two steps."""

import copy

import pytest
import torch
from torch import nn

from truestep.engine.fused import FusedOptimizerStep

KINDS = {
    "adamw": (torch.optim.AdamW, {"lr": 1e-2}),
    "adam": (torch.optim.Adam, {"lr": 1e-2, "weight_decay": 0.1, "betas": (0.7, 0.9), "eps": 1e-4}),
    "adamw-maximize": (torch.optim.AdamW, {"lr": 1e-2, "maximize": True}),
    "amsgrad": (torch.optim.AdamW, {"lr": 1e-2, "amsgrad": True}),
    "adam-tensor-lr": (torch.optim.AdamW, {"lr": torch.tensor(1e-2)}),
    "sgd": (torch.optim.SGD, {"lr": 1e-2}),
    "momentum": (torch.optim.SGD, {"lr": 1e-2, "momentum": 0.9, "weight_decay": 0.1}),
    "nesterov": (torch.optim.SGD, {"lr": 1e-2, "momentum": 0.9, "nesterov": True}),
    "dampening": (torch.optim.SGD, {"lr": 1e-2, "momentum": 0.9, "dampening": 0.5}),
    "sgd-maximize": (torch.optim.SGD, {"lr": 1e-2, "momentum": 0.9, "maximize": True}),
    "adagrad": (torch.optim.Adagrad, {"lr": 1e-2}),
}


class Pair:
    """The same parameters twice: stepped by torch, and by FusedStep."""

    def __init__(self, kind, fused=True, dtypes=(torch.float32,) * 3):
        make, options = KINDS[kind]
        torch.manual_seed(0)
        first = [nn.Parameter(torch.randn(n + 2, 3).to(dtype)) for n, dtype in enumerate(dtypes)]
        self.parameters = [first, [nn.Parameter(p.detach().clone()) for p in first]]
        self.optimizers = [
            make(
                [{"params": ps[:2]}, {"params": ps[2:], "weight_decay": 0.2, "lr": 0.03}]
                if not isinstance(options["lr"], torch.Tensor)
                else ps,
                **copy.deepcopy(options),
                fused=fused,
            )
            for ps in self.parameters
        ]
        self.fused = FusedOptimizerStep(self.optimizers[1])
        self.draw = torch.Generator().manual_seed(1)

    def step(self, missing=()):
        for index, (first, second) in enumerate(zip(*self.parameters, strict=True)):
            gradient = torch.randn(first.shape, generator=self.draw).to(first.dtype)
            first.grad = None if index in missing else gradient
            second.grad = None if index in missing else gradient.clone()
        self.optimizers[0].step()
        with torch.no_grad():
            self.fused()

    def check(self, same):
        assert same(*([p.detach() for p in ps] for ps in self.parameters))
        assert same(*(optimizer.state_dict()["state"] for optimizer in self.optimizers))


@pytest.mark.parametrize("kind", KINDS)
def test_plain_steps(same, kind):
    pair = Pair(kind)
    for _ in range(5):
        pair.step()
    pair.check(same)


MISSING = ((0,), (), (1, 2), (), (), (0, 1, 2), (2,), ())


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "momentum" not in KINDS[kind][1]])
def test_a_missing_gradient_now_and_then(same, kind):
    pair = Pair(kind)
    for missing in MISSING:
        pair.step(missing)
        pair.check(same)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "momentum" in KINDS[kind][1]])
def test_a_first_gradient_that_comes_late_with_momentum(kind):
    """torch's fused SGD fails on it (2.13: a None among the buffers), so the unfused one is what to compare with."""
    pair = Pair(kind)
    pair.optimizers[0].param_groups[0]["fused"] = pair.optimizers[0].param_groups[1]["fused"] = False
    for missing in MISSING:
        pair.step(missing)
        for expected, parameter in zip(*pair.parameters, strict=True):
            assert torch.allclose(expected, parameter, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_loaded_in_the_middle_and_twice(same, kind):
    pair = Pair(kind)
    pair.step()
    pair.step()
    saved = [copy.deepcopy(optimizer.state_dict()) for optimizer in pair.optimizers]
    pair.step()
    for times in (1, 2, 3, 2):
        for _ in range(times):
            for optimizer, state in zip(pair.optimizers, saved, strict=True):
                optimizer.load_state_dict(copy.deepcopy(state))
        pair.step()
        pair.step()
        pair.check(same)


@pytest.mark.parametrize("kind", ["adamw", "momentum"])
def test_groups_are_added_and_changed(same, kind):
    pair = Pair(kind)
    pair.step()
    pair.step()
    for parameters, optimizer in zip(pair.parameters, pair.optimizers, strict=True):
        parameters.append(nn.Parameter(torch.ones(4)))
        optimizer.add_param_group({"params": parameters[-1:], "lr": 0.5})
    pair.step()
    pair.step()
    pair.check(same)
    for optimizer in pair.optimizers:
        optimizer.param_groups[0]["lr"] = 0.2
        optimizer.param_groups[1]["weight_decay"] = 0.9
        optimizer.param_groups[0]["maximize"] = True
    pair.step()
    pair.check(same)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("adamw", {"fused": False}),
        ("adamw", {"betas": (0.5, 0.6)}),
        ("adamw", {"lr": torch.tensor(0.2)}),
        ("momentum", {"momentum": 0.1}),
        ("momentum", {"momentum": 0.0}),
        ("sgd", {"momentum": 0.9}),
        ("momentum", {"nesterov": True}),
        ("momentum", {"dampening": 0.3}),
        ("momentum", {"fused": False}),
    ],
)
def test_options_that_change_while_it_runs(same, kind, changes):
    pair = Pair(kind)
    pair.step()
    pair.step()
    for optimizer in pair.optimizers:
        for group in optimizer.param_groups:
            group.update(copy.deepcopy(changes))
    pair.step()
    pair.step()
    pair.check(same)


@pytest.mark.parametrize("kind", ["adamw", "sgd", "momentum", "nesterov"])
def test_hooks_are_called(kind, same):
    pair = Pair(kind)
    pair.step()
    pair.step()
    calls = []
    handles = [o.register_step_pre_hook(lambda *_: calls.append(1)) for o in pair.optimizers]
    pair.step()
    assert calls == [1, 1]
    for handle in handles:
        handle.remove()
    pair.step()
    assert calls == [1, 1]
    pair.check(same)


@pytest.mark.parametrize("kind", ["adamw", "adam", "momentum", "nesterov"])
def test_a_flag_leaves_everything_as_it_is(same, kind):
    pair = Pair(kind)
    pair.step()
    pair.step()
    for flag in (1.0, 0.0, 1.0, 0.0):
        for optimizer in pair.optimizers:
            optimizer.grad_scale, optimizer.found_inf = None, torch.tensor(flag)
        before = [p.detach().clone() for p in pair.parameters[1]]
        pair.step()
        assert same(before, [p.detach() for p in pair.parameters[1]]) == bool(flag)
        pair.check(same)


@pytest.mark.parametrize("kind", ["adamw", "momentum"])
def test_types_side_by_side(same, kind):
    pair = Pair(kind, dtypes=(torch.float32, torch.float64, torch.float32))
    for _ in range(3):
        pair.step()
    pair.check(same)


@pytest.mark.parametrize("kind", ["adamw", "momentum", "sgd"])
def test_unfused_optimizers_are_left_to_torch(same, kind):
    pair = Pair(kind, fused=False)
    for _ in range(3):
        pair.step()
    pair.check(same)


def test_state_that_was_cleared(same):
    pair = Pair("adamw")
    pair.step()
    pair.step()
    for optimizer in pair.optimizers:
        optimizer.state.clear()
    pair.step()
    pair.step()
    pair.check(same)
