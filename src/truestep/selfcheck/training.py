# SPDX-License-Identifier: Apache-2.0
"""The small training that a self-check runs on a device."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import truestep as ts

NUM_ROWS, WIDTH, CLASSES, BATCH = 96, 16, 4, 16


@dataclass(frozen=True)
class CheckedDevice:
    """Where checks run: a device, and a folder of their own."""

    device: torch.device
    folder: Path

    def on(self, device: str | torch.device) -> "CheckedDevice":
        """Return the same place on another device."""
        return CheckedDevice(torch.device(device), self.folder)

    def batch(self) -> list[Tensor]:
        """Return all examples, there."""
        return [each.to(self.device) for each in examples()]

    def run(self, name: str, **options: Any) -> ts.Run:
        """Return a run that says nothing."""
        return ts.Run(self.folder / name, device=self.device, seed=0, progress=False, quiet=True, **options)


def new_module(*, dropout: float = 0.1) -> nn.Module:
    """Return the same network each time, on the CPU."""
    torch.manual_seed(0)
    head = [nn.Dropout(dropout)] if dropout else []
    return nn.Sequential(nn.Linear(WIDTH, 64), nn.LayerNorm(64), nn.GELU(), *head, nn.Linear(64, CLASSES))


def examples() -> tuple[Tensor, Tensor]:
    """Return the same data each time, on the CPU."""
    draw = torch.Generator().manual_seed(0)
    return torch.randn(NUM_ROWS, WIDTH, generator=draw), torch.randint(CLASSES, (NUM_ROWS,), generator=draw)


def adamw(parameters: Any) -> torch.optim.Optimizer:
    """Return the optimizer of most checks."""
    return torch.optim.AdamW(parameters, lr=1e-2)


def losses(net: Callable[..., Any]) -> Callable[[Any], Tensor]:
    """Return the loss function of a network: one loss for each example."""
    return lambda batch: F.cross_entropy(net(batch[0]), batch[1], reduction="none")


def step_by_hand(module: nn.Module, optimizer: torch.optim.Optimizer, batch: Any) -> None:
    """Make an update as everybody writes it."""
    optimizer.zero_grad()
    torch.autograd.backward(losses(module)(batch).mean())
    optimizer.step()


def on_host(module: nn.Module) -> list[Tensor]:
    """Return copies of a module's weights and buffers on the CPU."""
    return [each.detach().cpu().clone() for each in module.state_dict().values()]


def train(
    place: CheckedDevice, name: str, *, num_epochs: int = 2, dropout: float = 0.1, **options: Any
) -> list[Tensor]:
    """Train for so many epochs, or go on to them; return the weights."""
    learner_options = {key: options.pop(key) for key in ("precision", "clip", "ema") if key in options}
    with place.run(name, **options) as run:
        net = run.learner(new_module(dropout=dropout), adamw, **learner_options)
        source = run.data(examples(), batch_size=BATCH, shuffle=True)
        for _ in run.epochs(num_epochs):
            for batch in run.batches(source):
                net.update(losses(net), batch)
            run.log(error=net.evaluate(losses(net), source))
        return on_host(net.module)


def distance(first: list[Tensor], second: list[Tensor]) -> float:
    """Return the largest difference of two lists of weights."""
    return max(float((a - b).abs().max()) for a, b in zip(first, second, strict=True))


def differ(first: list[Tensor], second: list[Tensor]) -> str:
    """Return how far two lists of weights are apart; "" where each bit is the same."""
    same = all(map(torch.equal, first, second))
    return "" if same else f"largest difference {distance(first, second):.3g}"
