# SPDX-License-Identifier: Apache-2.0
"""Seconds that every module of a model takes in a forward."""

import time
from typing import Any

import torch
from torch import nn

from truestep.core.accelerator import wait_for
from truestep.model.calling import Arguments, ModulePath, forward_tensors, run_forward, undisturbed_model

NUM_ROUNDS = 5


def layer_seconds(model: nn.Module, arguments: Arguments) -> dict[str, float]:
    """Return the least seconds of each module over five forwards of the model itself, after one to warm up.

    On an accelerator every module waits for the device, so that the whole takes longer than without timing.
    """
    devices = {tensor.device for tensor in [*model.parameters(), *forward_tensors(arguments)]}
    best: dict[str, float] = {}
    with undisturbed_model(model):
        run_forward(model, arguments)
        for _ in range(NUM_ROUNDS):
            for name, seconds in _one_round(model, arguments, devices).items():
                best[name] = min(seconds, best.get(name, seconds))
    return best


def _one_round(model: nn.Module, arguments: Arguments, devices: set[torch.device]) -> dict[str, float]:
    taken: dict[str, float] = {}
    begun: list[float] = []

    def now() -> float:
        for device in devices:
            wait_for(device)
        return time.perf_counter()

    def ends(name: str, *_: Any) -> None:
        taken[name] = taken.get(name, 0.0) + now() - begun.pop()

    with ModulePath(model).followed(lambda *_: begun.append(now()), ends):
        model(*arguments[0], **arguments[1])
    return taken
