# SPDX-License-Identifier: Apache-2.0
"""Layers that are unfrozen for an optimizer that does not know them."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from truestep.doctor.check import RISK
from truestep.doctor.finding import Place
from truestep.doctor.watcher import Observation, Observations, Watcher

if TYPE_CHECKING:
    from torch import Tensor, nn

    from truestep.doctor.runtime.history import OptimizerRecord, WatchHistory


NUMBERS = 16  # of a weight: they tell whether anything moves it


class UnfrozenNotOptimized(Watcher):
    """Layers are unfrozen in the course of a training, and no optimizer holds their weights.

    Why: the optimizer was made while they were frozen and was given the others alone: they get gradients now, and stay as
    they are.

    Bad:
        net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        net[0].requires_grad_(False)
        opt = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.1)  # here
        for epoch in range(epochs):
            net.train()
            if epoch == 2:
                net[0].requires_grad_(True)
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()

    Good:
        net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        net[0].requires_grad_(False)
        opt = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.1)
        for epoch in range(epochs):
            net.train()
            if epoch == 2:
                net[0].requires_grad_(True)
                opt.add_param_group({"params": net[0].parameters()})
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()

    Fix: opt.add_param_group({"params": layers.parameters()}) when they are unfrozen, or give the optimizer all weights from
    the start: those without a gradient stay as they are.
    """

    code = "PARAM046"

    def __init__(self) -> None:
        self.before: dict[int, dict[int, int]] = {}  # steps of others when an optimizer was made, by identity
        # of each model the weights that were frozen once, with a few of their numbers, by identity
        self.frozen: weakref.WeakKeyDictionary[nn.Module, dict[int, list[float]]] = (
            weakref.WeakKeyDictionary()
        )

    def on_optimizer(self, history: WatchHistory, record: OptimizerRecord) -> None:
        """Remember how far the others are: one that never steps again has had its training."""
        others = [each for each in history.records.values() if each is not record and each.num_steps]
        self.before[id(record.optimizer)] = {id(each.optimizer): each.num_steps for each in others}

    def on_mode(self, history: WatchHistory, module: nn.Module, training: bool, place: Place) -> Observations:
        """See which weights of a model are frozen, and which are so no more."""
        yield from self._judge(history, module)

    def on_finish(self, history: WatchHistory) -> Observations:
        """Look again at the models that are there still."""
        for module in list(self.frozen):
            yield from self._judge(history, module)

    def _judge(self, history: WatchHistory, module: nn.Module) -> Observations:
        holders = history.holding(module.parameters())
        if not holders:
            return
        before = self.before.get(id(holders[-1].optimizer), {})
        going_on = [each for key, each in history.records.items() if before.get(key) != each.num_steps]
        held = {id(each) for record in going_on for each in record.parameters()}
        frozen = self.frozen.setdefault(module, {})
        unfrozen = []
        for name, each in module.named_parameters():
            if id(each) in held:
                continue
            if not each.requires_grad:
                frozen[id(each)] = _few(each)
            elif each.grad is not None and frozen.get(id(each)) == _few(each) and bool(each.grad.any()):
                unfrozen.append(name)
        if unfrozen:
            text = f"{len(unfrozen)} parameters were unfrozen after this, get gradients, and no optimizer holds them."
            yield Observation(holders[-1].place, text, RISK, {"unfrozen": unfrozen[:6]})


def _few(weight: Tensor) -> list[float]:
    return weight.detach().flatten()[:NUMBERS].tolist()
