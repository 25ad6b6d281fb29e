# SPDX-License-Identifier: Apache-2.0
"""The small training that a self-check runs on a device; each of several processes runs this file."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import truestep as ts

NUM_ROWS, WIDTH, CLASSES, BATCH = 96, 16, 4, 16
# (with the usual eps, rounding decides where a weight goes whose gradient is next to nothing)
adamw = partial(torch.optim.AdamW, lr=1e-2, eps=1e-3)


Outcome = Literal["passed", "FAILED", "measured", "does not apply"]


class Seen(NamedTuple):
    """What one check saw."""

    outcome: Outcome
    says: str


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
        return [each.to(self.device) for each in make_test_examples()]

    def run(self, name: str, **options: Any) -> ts.Run:
        """Return a run that says nothing."""
        return ts.Run(self.folder / name, device=self.device, seed=0, progress=False, quiet=True, **options)


def make_test_network(*, dropout: float = 0.1) -> nn.Module:
    """Return the same network each time, on the CPU."""
    torch.manual_seed(0)
    head = [nn.Dropout(dropout)] if dropout else []
    return nn.Sequential(nn.Linear(WIDTH, 64), nn.LayerNorm(64), nn.GELU(), *head, nn.Linear(64, CLASSES))


def make_test_examples() -> tuple[Tensor, Tensor]:
    """Return the same data each time, on the CPU."""
    draw = torch.Generator().manual_seed(0)
    return torch.randn(NUM_ROWS, WIDTH, generator=draw), torch.randint(CLASSES, (NUM_ROWS,), generator=draw)


def per_example_loss_function(net: Callable[..., Any]) -> Callable[[Any], Tensor]:
    """Return the loss function of a network: one loss for each example."""
    return lambda batch: F.cross_entropy(net(batch[0]), batch[1], reduction="none")


def step_by_hand(module: nn.Module, optimizer: torch.optim.Optimizer, batch: Any) -> None:
    """Make an update as everybody writes it."""
    optimizer.zero_grad()
    torch.autograd.backward(per_example_loss_function(module)(batch).mean())
    optimizer.step()


def gradient_copies_on_cpu(module: nn.Module) -> list[Tensor]:
    """Return copies of a module's gradients on the CPU."""
    return [each.grad.detach().cpu().double() for each in module.parameters() if each.grad is not None]


def weight_copies_on_cpu(module: nn.Module) -> list[Tensor]:
    """Return copies of a module's weights and buffers on the CPU."""
    return [each.detach().cpu().clone() for each in module.state_dict().values()]


def train_for_epochs(
    place: CheckedDevice, name: str, *, num_epochs: int = 2, dropout: float = 0.1, **options: Any
) -> list[Tensor]:
    """Train for so many epochs, or go on to them; return the weights."""
    learner_options = {key: options.pop(key) for key in ("precision", "clip", "ema") if key in options}
    with place.run(name, **options) as run:
        net = run.learner(make_test_network(dropout=dropout), adamw, **learner_options)
        source = run.data(make_test_examples(), batch_size=BATCH, shuffle=True)
        for _ in run.epochs(num_epochs):
            for batch in run.batches(source):
                net.update(per_example_loss_function(net), batch)
            run.log(error=net.evaluate(per_example_loss_function(net), source))
        return weight_copies_on_cpu(net.module)


def compare_tensors(first: list[Tensor], second: list[Tensor], what: str, *, within: float = 0.0) -> Seen:
    """Return whether no weight differs by more than that; of 0 each bit is the same."""
    if all(map(torch.equal, first, second)):
        return Seen("passed", f"{what}: the same bits")
    far = max(float((a - b).abs().max()) for a, b in zip(first, second, strict=True))
    return Seen("passed" if far < within else "FAILED", f"{what}: largest difference {far:.2g}")


if __name__ == "__main__":  # training.py FOLDER DEVICE
    here = CheckedDevice(torch.device(sys.argv[2]), Path(sys.argv[1]))
    weights = train_for_epochs(here, "together", dropout=0)
    if os.environ.get("RANK") == "0":
        torch.save(weights, here.folder / "ranks.pt")
