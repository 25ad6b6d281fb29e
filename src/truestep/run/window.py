# SPDX-License-Identifier: Apache-2.0
"""The updates since the last line of metrics, averaged without waiting for the device."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from truestep.engine.result import Update
from truestep.run.options import check_name


class UpdateWindow:
    """The updates of one learner since the last line; kept one by one, so that a resumed run adds up the same bits."""

    def __init__(self) -> None:
        self.examples = 0
        self._values: dict[str, list[Tensor]] = {}
        self._weights: dict[str, list[Tensor | float]] = {}
        self._last: Update | None = None
        self._gradient_norm: Tensor | None = None

    def add(self, update: Update) -> None:
        """Note an update; nothing is read from the device."""
        self._last = update
        self.examples += update.num_examples
        weight = update.total_weight
        self._add("loss", update.loss, weight)
        for name, value in update.metrics.items():
            self._add(name, value, weight)

    def _add(self, name: str, value: Tensor, weight: Tensor | float) -> None:
        if name not in self._values:
            check_name(name, by="ts.weighted was given")
            self._values[name], self._weights[name] = [], []
        self._values[name].append(value)
        self._weights[name].append(weight)

    @property
    def gradient_norm(self) -> Tensor | None:
        """The gradient norm of the newest update."""
        if self._last is None:
            return self._gradient_norm
        return self._last.gradient_norm if self._last.has_gradient else None

    def averages(self) -> Mapping[str, Tensor | float]:
        """Return the mean of each value weighted by the updates' weights; NaN is not smoothed away.

        On a CPU all values are read at once, and the means are numbers.
        """
        if not any(value.is_cuda for values in self._values.values() for value in values):
            return self._averages_on_host()
        averages = {}
        for name, values in self._values.items():
            weights = _stacked(self._weights[name])
            # An update over nothing (all weights zero) has no mean, and no share in this one.
            shares = torch.where(weights == 0, 0.0, _stacked(values).to(weights.device) * weights)
            averages[name] = shares.sum() / weights.sum()
        return averages

    def _averages_on_host(self) -> dict[str, float]:
        noted = [value for values in self._values.values() for value in values]
        numbers = iter(torch.stack(noted).tolist() if noted else ())
        return {
            name: _mean([next(numbers) for _ in values], [float(each) for each in self._weights[name]])
            for name, values in self._values.items()
        }

    def state_dict(self) -> dict[str, Any]:
        """Return the window as tensors."""
        return {
            "examples": self.examples,
            "gradient_norm": self.gradient_norm,
            "values": {name: _stacked(values) for name, values in self._values.items()},
            "weights": {name: _stacked(weights) for name, weights in self._weights.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a window."""
        self.examples, self._gradient_norm = state["examples"], state["gradient_norm"]
        self._values = {name: list(values) for name, values in state["values"].items()}
        self._weights = {name: list(weights) for name, weights in state["weights"].items()}


def _mean(values: list[float], weights: list[float]) -> float:
    """Return the weighted mean; an update over nothing (no weight) has none, and no share in this one."""
    total = sum(weights)
    shares = [value * weight for value, weight in zip(values, weights, strict=True) if weight != 0]
    return sum(shares) / total if total else math.nan


def _stacked(values: Sequence[Tensor | float]) -> Tensor:
    """Return numbers, or scalar tensors, as one float64 tensor on the device where they are."""
    device = next((v.device for v in values if isinstance(v, Tensor) and v.is_cuda), torch.device("cpu"))
    if not any(isinstance(value, Tensor) for value in values):
        return torch.tensor(values, dtype=torch.float64)
    tensors = [value if isinstance(value, Tensor) else torch.tensor(value) for value in values]
    return torch.stack([tensor.detach().to(device, torch.float64) for tensor in tensors])
