# SPDX-License-Identifier: Apache-2.0
"""float16 gradients that may vanish."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.finding import Place
from truestep.doctor.library.functions import functions
from truestep.doctor.runtime.history import ForwardCall
from truestep.doctor.source.evaluations import TrainedModels
from truestep.doctor.source.events import TraceEvent
from truestep.doctor.source.loss_modules import is_without_grad
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.training_actions import SCALE
from truestep.doctor.source.value_origins import argument, literal, value_origins
from truestep.doctor.watcher_base import Observation, Observations, Watcher

if TYPE_CHECKING:
    from torch import Tensor

    from truestep.doctor.runtime.history import WatchHistory


class HalfPrecisionWithoutScaler(SourceCheck, Watcher):
    """The forward pass runs in float16, but no GradScaler scales the loss.

    Why: float16 can't hold gradients below 6e-8: they become zero, silently.

    Bad:
        for x, y in loader:
            opt.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):  # here
                loss = F.cross_entropy(net(x), y)
            loss.backward()
            opt.step()

    Good:
        for x, y in loader:
            opt.zero_grad()
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = F.cross_entropy(net(x), y)
            loss.backward()
            opt.step()

    Fix: use bfloat16, or scale with torch.amp.GradScaler.

    Evidence: 186 repositories, beds D, R, S: 2 true, 2 false.
    """

    code = "AMP007"
    never = (SCALE,)
    words = ("autocast",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a float16 autocast in a program that trains and has nothing that scales."""
        scaled = module.program.called_anywhere("scale", "manual_backward")
        if scaled or not any(trace.training_loops() for trace in module.traces):
            return
        for call in module.calls(*functions("casts within")):
            if literal(module, argument(call, None, "enabled")) is False:
                continue
            if _is_float16_autocast(module, call) and _has_training_forward(module, call):
                yield At(call, "float16 without a GradScaler: small gradients become zero.", RISK)

    def __init__(self) -> None:
        self.applied_at: Place | None = None

    def on_forward(self, history: WatchHistory, forward: ForwardCall) -> None:
        """Note a training forward under float16 autocast: also where a scaler was switched off by mistake."""
        import torch

        device = next((each.device.type for each in forward.module.parameters()), "cpu")
        known = torch.amp.is_autocast_available(device)
        half = (
            known and torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device) is torch.float16
        )
        self.applied_at = forward.place if half and forward.gradients_on else None

    def on_backward(self, history: WatchHistory, tensors: tuple[Tensor, ...], place: Place) -> Observations:
        """Report a loss that nothing has multiplied."""
        if self.applied_at is not None and len(tensors) == 1 and (made := tensors[0].grad_fn) is not None:
            if not made.name().startswith(("Mul", "Div")):
                text = "The forward ran in float16, and the loss goes backward without a scale."
                yield Observation(self.applied_at, text, RISK)


def _is_float16_autocast(module: SourceModule, call: ast.Call) -> bool:
    """float16 is what CUDA autocast means by default."""
    old = module.qualify(call.func) == "torch.cuda.amp.autocast"
    dtype = argument(call, 1 if not old else None, "dtype")
    device = argument(call, 0, "device_type")
    on_cuda = old or (isinstance(device, ast.Constant) and device.value == "cuda")
    return module.qualify(dtype) in ("torch.float16", "torch.half") if dtype is not None else on_cuda


def _has_training_forward(module: SourceModule, call: ast.Call) -> bool:
    """Tell whether a block holds what a training applies its model or computes its loss by: a validation goes nowhere backward."""
    block = module.enclosing(call, ast.With)
    if block is None:
        return False
    for trace in module.traces:
        for loop in trace.training_loops():
            forwards = [each for each in loop.of("forward") if _is_inside_with_block(module, each, block)]
            trained = TrainedModels(module, trace.learning_loops())
            losses = [each.receiver for each in loop.of("backward") if each.receiver is not None]
            made = [each for loss in losses for each in value_origins(module, loss) if each is not None]
            is_made = any(block in module.home(each).ancestors(each) for each in made)
            if is_made or any(
                each in trained and not is_without_grad(module, each.node) for each in forwards
            ):
                return True
    return False


def _is_inside_with_block(module: SourceModule, event: TraceEvent, block: ast.With) -> bool:
    nodes = [event.node, *(frame.node for frame in event.path)]
    return any(each is block or block in module.home(each).ancestors(each) for each in nodes)
