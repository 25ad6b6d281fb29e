# SPDX-License-Identifier: Apache-2.0
"""The updates since the last line of metrics, averaged without waiting for the device."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from truestep.engine.step import Update


class Window:
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
            self._values[name], self._weights[name] = [], []
        self._values[name].append(value)
        self._weights[name].append(weight)

    @property
    def gradient_norm(self) -> Tensor | None:
        """The gradient norm of the newest update."""
        if self._last is None:
            return self._gradient_norm
        return self._last.gradient_norm if self._last.has_gradient else None

    def averages(self) -> dict[str, Tensor]:
        """Return the mean of each value weighted by the updates' weights; NaN is not smoothed away."""
        averages = {}
        for name, values in self._values.items():
            weights = _stacked(self._weights[name])
            # An update over nothing (all weights zero) has no mean, and no share in this one.
            shares = torch.where(weights == 0, 0.0, _stacked(values).to(weights.device) * weights)
            averages[name] = shares.sum() / weights.sum()
        return averages

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


def _stacked(values: Sequence[Tensor | float]) -> Tensor:
    """Return numbers, or scalar tensors, as one float64 tensor on the device where they are."""
    device = next((v.device for v in values if isinstance(v, Tensor) and v.is_cuda), torch.device("cpu"))
    if not any(isinstance(value, Tensor) for value in values):
        return torch.tensor(values, dtype=torch.float64)
    tensors = [value if isinstance(value, Tensor) else torch.tensor(value) for value in values]
    return torch.stack([tensor.detach().to(device, torch.float64) for tensor in tensors])
