# SPDX-License-Identifier: Apache-2.0
"""An optimizer that owns no weights, so that a schedule can be stepped without using anything up."""

from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer

from truestep.core.errors import OptionError

DEFAULTS = {"lr": 1.0, "momentum": 0.9, "weight_decay": 0.0}
WRITTEN_BY_SCHEDULES = ("initial_lr", "max_lr", "min_lr", "max_momentum", "base_momentum")


class DummyOptimizer(Optimizer):
    """The groups of an optimizer with one number each for parameters; a step changes nothing."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Do nothing: schedules ask only whether it was called."""


def dummy_optimizer_like(like: "float | Optimizer | None") -> DummyOptimizer:
    """Return a dummy with the groups of `like`: an optimizer, the learning rate of one, or none for a rate of 1."""
    if isinstance(like, Optimizer):
        groups = [{"params": [_number()], **_settings(group)} for group in like.param_groups]
        return DummyOptimizer(groups, dict(like.defaults))
    if like is not None and (isinstance(like, bool) or not isinstance(like, int | float)):
        raise OptionError(
            f"optimizer={like!r} is a {type(like).__name__}. Give the optimizer that is scheduled (it is copied, not used), or its "
            "learning rate: optimizer=3e-4."
        )
    return DummyOptimizer([_number()], DEFAULTS | ({} if like is None else {"lr": float(like)}))


def _number() -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.zeros(1, device="cpu"))


def _settings(group: dict[str, Any]) -> dict[str, Any]:
    """Return a group's settings as they were before a schedule of its own moved them."""
    kept = {
        name: value.item() if isinstance(value, torch.Tensor) else value
        for name, value in group.items()
        if name != "params" and name not in WRITTEN_BY_SCHEDULES
    }
    if "initial_lr" in group:
        kept["lr"] = group["initial_lr"]
    return kept


Reading = Callable[[dict[str, Any]], float | None]


def _momentum(group: dict[str, Any]) -> float | None:
    betas = group.get("betas")
    return betas[0] if betas else group.get("momentum")


QUANTITIES: dict[str, Reading] = {
    "learning rate": lambda group: group["lr"],
    "momentum": _momentum,
    "weight decay": lambda group: group.get("weight_decay"),
}
