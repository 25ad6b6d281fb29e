# SPDX-License-Identifier: Apache-2.0
"""The updates since the last line of metrics, averaged without waiting for the device."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from truestep.core.device_specific import has_async_tensor, send_to_device, to_float64
from truestep.engine.deferred_means import Noted, deferred_mean_value, metric_means_as_numbers
from truestep.engine.loss_sums import LossTotals
from truestep.engine.result import DeferredGradientNorm, Update
from truestep.run.options import check_run_name

MOST_NOTED = 64
"""Updates that are noted before what they gave is taken in; each holds what was noted of its losses until then."""


class LearnerLogWindow:
    """The updates of one learner since the last line; kept one by one, so that a resumed run adds up the same bits.

    Between two lines an update is only noted: what is computed for many at once, where it is needed, costs a fraction.
    """

    def __init__(self) -> None:
        self._noted: list[LossTotals] = []
        self._examples = 0
        self._values: dict[str, list[Noted | float]] = {}  # means, or what was noted in their place
        self._weights: dict[str, list[Tensor | float]] = {}
        self._last: Update | None = None
        self._gradient_norm: Tensor | None = None

    def add(self, update: Update) -> None:
        """Note an update; nothing is read from the device."""
        sums, noted = update.sums, self._noted
        self._last = update
        noted.append(sums)
        if len(noted) == MOST_NOTED or (sums.has_more and self._is_to_be_taken_in_now(sums)):
            self._take_in_pending_updates()

    def _is_to_be_taken_in_now(self, sums: LossTotals) -> bool:
        """Whether it holds outputs, which are as large as they are, or metrics by new names, which may be refused."""
        return sums.has_outputs or not self._values.keys() >= sums.names

    def _take_in_pending_updates(self) -> None:
        """Take what the updates gave, which is kept for each of them."""
        noted, self._noted = self._noted, []
        for sums in noted:
            self._examples += sums.num_examples
            for name, value in sums.noted():
                if name not in self._values:
                    check_run_name(name, by="ts.weighted was given")
                    self._values[name], self._weights[name] = [], []
                self._values[name].append(value)
                self._weights[name].append(sums.total)
        if len(noted) == MOST_NOTED and not _has_values_on_device(self._values):
            # means in the place of what was noted for them
            _read_values_on_host(self._values.values())

    @property
    def examples(self) -> int:
        """How many examples the updates had."""
        self._take_in_pending_updates()
        return self._examples

    @property
    def gradient_norm(self) -> Tensor | None:
        """The gradient norm of the newest update, which is let go of: it may hold much."""
        last, self._last = self._last, None
        if last is not None:
            self._gradient_norm = last.gradient_norm if last.has_gradient else None
        return self._gradient_norm

    def note_norm(self) -> Tensor | DeferredGradientNorm | None:
        """Return the same, of a small gradient on a CPU to be computed where it is read."""
        if self._last is None or not self._last.has_gradient:
            return self.gradient_norm
        last, self._last = self._last, None
        return last.note_norm()

    def averages(self) -> dict[str, Tensor | float]:
        """Return the mean of each value weighted by the updates' weights; NaN is not smoothed away.

        On a CPU all values are read at once, and the means are numbers.
        """
        self._take_in_pending_updates()
        if not _has_values_on_device(self._values):
            return self._averages_on_host()
        averages: dict[str, Tensor | float] = {}
        for name, values in self._values.items():
            means = _stack_as_float64([*map(_noted_mean, values)])
            # An update over nothing (all weights zero) has no mean, and no share in this one.
            weights = _stack_as_float64([*self._weights[name]], means.device)
            shares = torch.where(weights == 0, 0.0, means * weights)
            averages[name] = shares.sum() / weights.sum()
        return averages

    def _averages_on_host(self) -> dict[str, Tensor | float]:
        _read_values_on_host(self._values.values())
        return {
            name: _weighted_mean(each, [*map(float, self._weights[name])])
            for name, each in self._values.items()
        }

    def state_dict(self) -> dict[str, Any]:
        """Return the window as tensors."""
        self._take_in_pending_updates()
        return {
            "examples": self._examples,
            "gradient_norm": self.gradient_norm,
            "values": {
                name: _stack_as_float64([*map(_noted_mean, values)]) for name, values in self._values.items()
            },
            "weights": {name: _stack_as_float64(weights) for name, weights in self._weights.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a window."""
        self._examples, self._gradient_norm = state["examples"], state["gradient_norm"]
        self._values = {name: list(values) for name, values in state["values"].items()}
        self._weights = {name: list(weights) for name, weights in state["weights"].items()}


def read_log_windows(windows: Sequence[LearnerLogWindow]) -> None:
    """Have numbers in the place of what is on the host, of many windows in one pass."""
    held: list[list[Noted | float]] = []
    for each in windows:
        each._take_in_pending_updates()
        if not _has_values_on_device(each._values):
            held += each._values.values()
    _read_values_on_host(held)


def _read_values_on_host(held: Iterable[list[Noted | float]]) -> None:
    lists = [values for values in held if not all(isinstance(value, float) for value in values)]
    numbers = iter(
        metric_means_as_numbers([each for values in lists for each in values if not isinstance(each, float)])
    )
    for values in lists:
        values[:] = [each if isinstance(each, float) else next(numbers) for each in values]


def _noted_mean(value: Noted | float) -> Tensor | float:
    return value if isinstance(value, float) else deferred_mean_value(value)


def _has_values_on_device(values: Mapping[str, Sequence[Noted | float]]) -> bool:
    return has_async_tensor(value for each in values.values() for value in each)


def _weighted_mean(values: list[Any], weights: list[float]) -> float:
    """Return the weighted mean; an update over nothing (no weight) has none, and no share in this one."""
    total = sum(weights)
    shares = [value * weight for value, weight in zip(values, weights, strict=True) if weight != 0]
    return sum(shares) / total if total else math.nan


def _stack_as_float64(values: Sequence[Tensor | float], device: torch.device | None = None) -> Tensor:
    """Return numbers, or scalar tensors, as one float64 tensor: on `device`, or where they are; nobody waits for it."""
    tensors = [value for value in values if isinstance(value, Tensor)]
    if device is None:
        device = next((each.device for each in tensors if has_async_tensor([each])), torch.device("cpu"))
    if not tensors:
        return send_to_device(torch.tensor(values, dtype=torch.float64), device)
    wide = [
        to_float64(value.detach() if isinstance(value, Tensor) else torch.tensor(value)) for value in values
    ]
    return torch.stack([each if each.device == device else send_to_device(each, device) for each in wide])
