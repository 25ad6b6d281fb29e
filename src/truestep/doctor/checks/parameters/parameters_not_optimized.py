# SPDX-License-Identifier: Apache-2.0
"""Gradients that no optimizer uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from truestep.core.tensor_bytes import tensor_version
from truestep.core.user_frames import is_library_file
from truestep.doctor.check import ADVICE, BUG, QUESTION, RISK
from truestep.doctor.finding import Place
from truestep.doctor.runtime.history import ForwardCall, LossCall
from truestep.doctor.watcher_base import Observation, Observations, Watcher

if TYPE_CHECKING:
    from torch import Tensor, nn

    from truestep.doctor.runtime.history import OptimizerRecord, WatchHistory

AFTER = 4  # steps: until then, other optimizers have had their turn


class ParametersNotOptimized(Watcher):
    """Parameters get gradients, but no optimizer holds them.

    Why: they stay at their random start. If they are meant to be frozen, requires_grad_(False) says so and saves their
    gradients. Those of a teacher or a target are computed for nothing.

    Bad:
        net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        opt = torch.optim.SGD(net[0].parameters(), lr=0.1)  # here
        for _ in range(3):
            for x, y in loader:
                net.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()

    Good:
        net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        net[2].requires_grad_(False)
        opt = torch.optim.SGD(net[0].parameters(), lr=0.1)
        for _ in range(3):
            for x, y in loader:
                net.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()

    Fix: give the optimizer these parameters too, those of a loss with weights of its own among them, or freeze them with
    requires_grad_(False). A teacher or target is applied under torch.no_grad().

    Evidence: eriklindernoren/PyTorch-GAN 36d3c77e implementations/esrgan/esrgan.py:138;
    eriklindernoren/PyTorch-GAN 36d3c77e implementations/srgan/srgan.py:121.
    """

    code = "PARAM015"

    def __init__(self) -> None:
        self.applied: dict[
            int, tuple[Place, list[int]]
        ] = {}  # each model's line, and the versions of its weights
        self.asked: set[int] = set()  # layers that the targets of losses came from

    def on_forward(self, history: WatchHistory, forward: ForwardCall) -> None:
        """Remember where each model is applied with gradients on."""
        if forward.gradients_on and history.is_in_first_steps and id(forward.module) not in self.applied:
            self.applied[id(forward.module)] = forward.place, _parameter_versions(forward.module)

    def on_loss(self, history: WatchHistory, loss: LossCall) -> None:
        """Remember which layers made the targets: a teacher's need no training."""
        origin = history.origins.of(loss.target) if history.is_in_first_steps else None
        if origin is not None:
            self.asked |= {id(each.layer) for each in origin.ancestors() if each.layer is not None}

    def on_step(self, history: WatchHistory, record: OptimizerRecord, place: Place) -> Observations:
        """Ask, some steps in, about parameters with gradients in models that are trained in part."""
        if record.num_steps != AFTER:
            return
        held = {id(each) for every in history.records.values() for each in every.parameters()}
        for model in list(history.models):
            named = list(model.named_parameters())
            mine = {id(each) for each in record.parameters()}
            missed = [name for name, each in named if id(each) not in held and each.grad is not None]
            if (
                missed
                and any(id(each) in mine for _, each in named)
                and not self._has_orphaned_parameters(history, record)
            ):
                evidence = {"not_optimized": missed[:6], "number": len(missed)}
                text = f"{len(missed)} of {len(named)} parameters get gradients, but no optimizer holds them."
                yield Observation(record.place, text, QUESTION, evidence)
            elif missed and len(missed) == len(named):
                yield from self._report_untrained_model(history, model)

    def _report_untrained_model(self, history: WatchHistory, model: nn.Module) -> Observations:
        """Report a model that nothing updates, also not by hand."""
        place, versions = self.applied.get(id(model), (None, []))
        if place is None or versions != _parameter_versions(model):
            return
        name, evidence = history.called(model), {"model": history.called(model), "parameters": len(versions)}
        if self._is_untrained_on_purpose(history, model):
            text = f"Each backward() computes the gradients of {name}, which no optimizer holds."
            yield Observation(place, text, ADVICE, evidence)
        else:
            text = f"{name} is never trained: it gets gradients, and no optimizer holds its parameters."
            yield Observation(place, text, BUG if history.is_whole else RISK, evidence)

    def _is_untrained_on_purpose(self, history: WatchHistory, model: nn.Module) -> bool:
        """Tell a teacher, a copy of another model, and one whose weights came from elsewhere."""
        parts = list(model.modules())
        written_in = getattr(getattr(type(model).forward, "__code__", None), "co_filename", "")
        of_library = is_library_file(written_in) and not type(model).__module__.startswith("torch.nn.")
        loaded = any(part in history.loaded for part in parts)
        # an initialisation writes into its tensors, but for those that zeros() or ones() fill
        copied = not any(_parameter_versions(model)) and not all(map(_has_constant_value, model.parameters()))
        return of_library or loaded or copied or any(id(part) in self.asked for part in parts)

    def _has_orphaned_parameters(self, history: WatchHistory, record: OptimizerRecord) -> bool:
        """An optimizer with parameters of no model was made before a replacement: PARAM005."""
        known = {id(each) for model in history.models for each in model.parameters()}
        return any(id(each) not in known and each.grad is None for each in record.parameters())


def _parameter_versions(model: nn.Module) -> list[int]:
    return [tensor_version(each) for each in model.parameters()]


def _has_constant_value(parameter: Tensor) -> bool:
    return parameter.numel() < 2 or bool((parameter == parameter.flatten()[0]).all())
