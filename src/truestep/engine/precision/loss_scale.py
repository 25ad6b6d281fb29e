# SPDX-License-Identifier: Apache-2.0
"""A loss scale: keeps float16 gradients from underflowing, and finds the updates that overflowed.

Micikevicius et al., "Mixed Precision Training", ICLR 2018. The dynamic rule (halve after an overflow, double after
`growth_interval` updates without one) and the names in the state are those of `torch.amp.GradScaler`, so that its
state dicts can be loaded.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from truestep.core.errors import OptionError, check_number


@dataclass(frozen=True, kw_only=True)
class LossScale:
    """How the loss is scaled in float16 modes; each learner has its own.

    Attributes:
        initial: the scale of the first update; powers of two lose nothing to rounding.
        dynamic: whether it changes at all.
        growth: the factor after `growth_interval` updates in a row without overflow.
        backoff: the factor after an overflow.
    """

    initial: float = 2.0**16
    dynamic: bool = True
    growth: float = 2.0
    backoff: float = 0.5
    growth_interval: int = 2000

    def __post_init__(self) -> None:
        for name, example in {
            "initial": 65536.0,
            "growth": 2.0,
            "backoff": 0.5,
            "growth_interval": 2000,
        }.items():
            check_number("ts.LossScale", name, getattr(self, name), example=example)
        if not self.initial > 0 or self.initial == float("inf"):
            raise OptionError(f"loss_scale={self.initial} must be a positive, finite number; 65536 is usual.")
        if self.growth <= 1 or not 0 < self.backoff < 1 or self.growth_interval < 1:
            raise OptionError(
                f"A dynamic loss scale grows by more than 1 (growth={self.growth}), backs off by a factor between 0 and 1 "
                f"(backoff={self.backoff}), after at least one update (growth_interval={self.growth_interval})."
            )

    @classmethod
    def of(cls, option: "LossScale | float | str | None") -> "LossScale":
        """Read a user's option: None or "dynamic", a fixed number, or a `LossScale`."""
        if option is None or option == "dynamic":
            return cls()
        if isinstance(option, cls):
            return option
        if isinstance(option, int | float):
            return cls(initial=float(option), dynamic=False)
        raise OptionError(
            f'loss_scale={option!r}: give "dynamic", a number such as 128, or ts.LossScale(...).'
        )


class Scaler:
    """The loss scale of one learner while it trains; all of it lives on the device."""

    def __init__(self, options: LossScale, device: torch.device) -> None:
        self.options = options
        self.scale = torch.full((), options.initial, dtype=torch.float32, device=device)
        self.growth_tracker = torch.zeros((), dtype=torch.int32, device=device)
        self.found_inf = torch.zeros((), dtype=torch.float32, device=device)

    def unscale(self, gradients: Sequence[Tensor], factor: Tensor | float | None) -> None:
        """Divide `gradients` by the scale (times `factor`) in place and note in `found_inf` whether one is not finite."""
        self.found_inf = torch.zeros_like(self.found_inf)
        inverse = (self.scale.reciprocal() * (1.0 if factor is None else factor)).float()
        for same_kind in gradients_by_dtype(gradients):
            # What torch.amp.GradScaler itself calls: one pass that multiplies and checks.
            torch._amp_foreach_non_finite_check_and_unscale_(same_kind, self.found_inf, inverse)

    def update_loss_scale(self, empty: Tensor | None = None) -> None:
        """Grow or back off after an update, by its `found_inf`; leave it as it was where `empty` (0 or 1, on the device) is set."""
        if not self.options.dynamic:
            return
        options, before = (
            self.options,
            None if empty is None else (self.scale.clone(), self.growth_tracker.clone()),
        )
        torch._amp_update_scale_(
            self.scale,
            self.growth_tracker,
            self.found_inf,
            options.growth,
            options.backoff,
            options.growth_interval,
        )
        if before is not None and empty is not None:
            for now, kept in zip((self.scale, self.growth_tracker), before, strict=True):
                now.copy_(torch.where(empty.bool(), kept, now))

    def state_dict(self) -> dict[str, Any]:
        """Return the scale and how long it has held, in the layout of `torch.amp.GradScaler`."""
        return {
            "scale": float(self.scale),
            "growth_factor": self.options.growth,
            "backoff_factor": self.options.backoff,
            "growth_interval": self.options.growth_interval,
            "_growth_tracker": int(self.growth_tracker),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over the scale and how long it has held; the rule stays this run's own."""
        self.scale.fill_(float(state["scale"]))
        self.growth_tracker.fill_(int(state["_growth_tracker"]))


def gradients_by_dtype(tensors: Sequence[Tensor]) -> list[list[Tensor]]:
    """Return the tensors in lists of one type each."""
    groups: dict[torch.dtype, list[Tensor]] = {}
    for tensor in tensors:
        groups.setdefault(tensor.dtype, []).append(tensor)
    return list(groups.values())
