# SPDX-License-Identifier: Apache-2.0
"""Seconds that every module of a model takes in a forward."""

import time
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn

from truestep.model.calling import (
    Arguments,
    ModulePath,
    forward_tensors,
    hookable_modules,
    run_forward,
    undisturbed_model,
)

NUM_ROUNDS = 5


def layer_seconds(model: nn.Module, arguments: Arguments) -> dict[str, float]:
    """Return the least seconds of each module over five forwards of the model itself, after one to warm up.

    On a CUDA device every module waits for the device, so that the whole takes longer than without timing.
    """
    is_cuda = any(tensor.is_cuda for tensor in [*model.parameters(), *forward_tensors(arguments)])
    best: dict[str, float] = {}
    with undisturbed_model(model):
        run_forward(model, arguments)
        for _ in range(NUM_ROUNDS):
            for name, seconds in _one_round(model, arguments, is_cuda=is_cuda).items():
                best[name] = min(seconds, best.get(name, seconds))
    return best


def _one_round(model: nn.Module, arguments: Arguments, *, is_cuda: bool) -> dict[str, float]:
    path, taken, begun = ModulePath(model), {}, []  # type: ignore[var-annotated]

    def now() -> float:
        if is_cuda:
            torch.cuda.synchronize()
        return time.perf_counter()

    def enter(module: nn.Module, inputs: Any) -> None:
        path.enter(module, inputs)
        begun.append(now())

    def leave(*_: Any) -> None:
        name = path.entered[-1][0]
        path.leave()
        taken[name] = taken.get(name, 0.0) + now() - begun.pop()

    with ExitStack() as stack:
        for module in hookable_modules(model):
            stack.callback(module.register_forward_pre_hook(enter).remove)
            stack.callback(module.register_forward_hook(leave).remove)
        model(*arguments[0], **arguments[1])
    return taken
