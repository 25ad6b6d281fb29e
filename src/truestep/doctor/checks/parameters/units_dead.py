# SPDX-License-Identifier: Apache-2.0
"""ReLUs that give 0 for every input."""

from __future__ import annotations

from typing import TYPE_CHECKING

from truestep.doctor.check import RISK
from truestep.doctor.finding import Place
from truestep.doctor.runtime.tensor_queries import is_readable_without_sync
from truestep.doctor.watcher_base import Observation, Observations, Watcher

if TYPE_CHECKING:
    import torch
    from torch import nn

    from truestep.doctor.runtime.history import OptimizerRecord, WatchHistory

STEPS = 8
SHARE = 0.9
SILENT = 8  # steps in a row, of those that are looked at
SINGLE = 16  # as many of single examples, where no unit lived before


class UnitsDead(Watcher):
    """Nearly all units of a ReLU layer give 0 for every input of the first batches, or all of them from some step on.

    Why: a unit that is 0 everywhere gets no gradient: it never learns again.

    Bad:
        nn.init.constant_(net[0].bias, -10.0)
        for _ in range(3):
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()  # here
                opt.step()

    Good:
        for _ in range(3):
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()

    Fix: zero bias, a lower learning rate, LeakyReLU; new initial weights (also of the bias) revive the layer.

    Evidence: mehilshah/Bug_Reproducibility_DL_Bugs 11b01d62 Bugs/077/main.py:14.
    """

    code = "PARAM018"
    looks_inside = True

    def __init__(self) -> None:
        self.died: dict[int, int] = {}  # the steps before the first in which none did
        self.alive: dict[int, torch.Tensor] = {}
        self.layers: dict[int, nn.Module] = {}
        self.lived: set[int] = set()
        self.now: dict[int, bool] = {}  # whether any unit gave more than 0 since the last step
        self.silent: dict[int, int] = {}  # steps in a row in which none did

    def on_layer(self, history: WatchHistory, module: nn.Module, output: object) -> None:
        """Remember which units of each ReLU ever gave more than 0 in training."""
        import torch
        from torch import nn

        if isinstance(module, nn.ReLU) and isinstance(output, torch.Tensor) and module.training:
            if not is_readable_without_sync(output) or output.numel() < 2:
                return
            self.layers[id(module)] = module
            self.now[id(module)] = self.now.get(id(module), False) or bool(output.any())
            if output.dim() < 2 or output.shape[0] < 2:
                self.silent.setdefault(id(module), SILENT - SINGLE)
                return
            if not history.is_in_first_steps:
                return
            alive = (output > 0).transpose(0, 1).flatten(1).any(1)  # dimension 1 holds the units
            known = self.alive.get(id(module))
            self.alive[id(module)] = alive if known is None or known.shape != alive.shape else known | alive

    def on_objective(self, history: WatchHistory, tensors: object, place: Place) -> Observations:
        """Judge once, after some steps."""
        if history.num_steps != STEPS:
            return
        for layer, alive in self.alive.items():
            dead = int((~alive).sum())
            if alive.numel() >= 4 and dead >= SHARE * alive.numel():
                name = history.module_path(self.layers[layer])
                text = f"{dead} of {alive.numel()} units of {name} (ReLU) gave 0 for every input of {STEPS} steps."
                yield Observation(place, text, RISK, {"dead_units": dead, "units": alive.numel()})
        self.alive.clear()

    def on_stepped(self, history: WatchHistory, record: OptimizerRecord, place: Place) -> Observations:
        """Report a layer that lived at first and then fell silent, or never lived: the steps are too large for it."""
        now, self.now = self.now, {}
        for layer, alive in now.items():
            if alive:
                self.silent[layer] = 0
                self.died.pop(layer, None)
                self.lived.add(layer)
            # where no gradient is left, as of a hinge, there is nothing to learn
            elif layer in self.silent and record.holds_gradients():
                self.died.setdefault(layer, history.num_steps)
                self.silent[layer] += 1
                if self.silent[layer] == SILENT:
                    died = self.died[layer]
                    since = SILENT if layer in self.lived else history.num_steps + 1
                    name = history.module_path(self.layers[layer])
                    text = f"All units of {name} (ReLU) were dead by step {died}: they gave 0 in the {since} steps looked at since."
                    yield Observation(record.place, text, RISK, {"after_steps": died})
