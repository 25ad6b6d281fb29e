# SPDX-License-Identifier: Apache-2.0
"""An exponential moving average of a learner's weights."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from truestep.errors import OptionError, check_number


@dataclass(frozen=True, kw_only=True)
class EMA:
    """Keep an exponential moving average of the weights, for evaluation and export.

    Attributes:
        decay: how much of the average stays at an update; 0.999 averages over about a thousand updates.
        warmup: let the decay grow as (1 + updates) / (10 + updates) up to `decay`, so that the first random weights are
            soon forgotten (Martín Abadi et al., TensorFlow's `ExponentialMovingAverage`).
        starts_at: before so many updates the average is the weights themselves.
    """

    decay: float = 0.999
    warmup: bool = True
    starts_at: int = 0

    def __post_init__(self) -> None:
        check_number("ts.EMA", "decay", self.decay, example=0.999)
        check_number("ts.EMA", "starts_at", self.starts_at, example=0)
        if not 0 <= self.decay < 1:
            raise OptionError(
                f"EMA(decay={self.decay}): the decay lies between 0 (no memory) and 1 (never changes); 0.999 is usual."
            )

    def decay_at(self, updates: int) -> float:
        """Return the decay of update number `updates` (counted from one)."""
        if updates <= self.starts_at:
            return 0.0
        return min(self.decay, (1 + updates) / (10 + updates)) if self.warmup else self.decay


class Average:
    """The moving average of a learner's weights; buffers are those of the module (batch statistics are averages already)."""

    def __init__(
        self,
        names: Sequence[str],
        weights: Sequence[nn.Parameter],
        masters: Sequence[nn.Parameter],
        options: EMA,
    ) -> None:
        self.options = options
        kept = [index for index, p in enumerate(weights) if p.is_floating_point() or p.is_complex()]
        self._names = [names[index] for index in kept]
        self._parameters: list[Tensor] = [weights[index] for index in kept]
        # Where the optimizer moves float32 masters, these are averaged, not what they are rounded to.
        self._sources: list[Tensor] = [masters[index] for index in kept]
        # Averages of half-precision weights are kept in float32: 1 - decay is lost in 8 or 11 bits.
        self.tensors = [
            p.detach().to(torch.promote_types(p.dtype, torch.float32), copy=True) for p in self._sources
        ]

    @torch.no_grad()
    def update(self, updates: int, applied: Tensor | None = None) -> None:
        """Move towards the weights after update number `updates`; `applied` (0 or 1, on the device) can hold it back."""
        weight: Any = 1 - self.options.decay_at(updates)
        if applied is not None:
            weight = applied * weight
        current = [p.detach().to(a.dtype) for p, a in zip(self._sources, self.tensors, strict=True)]
        torch._foreach_lerp_(self.tensors, current, weight)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Put the averages in the place of the weights, and the weights back at the end."""
        kept = [parameter.detach().clone() for parameter in self._parameters]
        with torch.no_grad():
            torch._foreach_copy_(self._parameters, self.tensors)
        try:
            yield
        finally:
            with torch.no_grad():
                torch._foreach_copy_(self._parameters, kept)

    def state_dict(self) -> dict[str, Tensor]:
        """Return the averages by parameter name."""
        return dict(zip(self._names, self.tensors, strict=True))

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take over the averages."""
        with torch.no_grad():
            for name, tensor in zip(self._names, self.tensors, strict=True):
                tensor.copy_(state[name])
