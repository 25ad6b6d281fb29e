# SPDX-License-Identifier: Apache-2.0
"""Bringing values from the device without waiting for it."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from truestep.core.accelerator import ArrivingCopy, are_late, bring_together, in_float64, send_to_host
from truestep.engine.result import NotedGradientNorm

Line = tuple[dict[str, Any], dict[str, float]]
Values = dict[str, Tensor | NotedGradientNorm | float]
AskedValues = Callable[[], Values] | dict[str, float]
"""Numbers, or what gives the values when somebody reads."""


class ProgressReadback:
    """Lines whose values are not read yet: on their way from the device, or on a CPU where several are read together."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[dict[str, Any], AskedValues, ArrivingCopy | None]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def push(self, where: dict[str, Any], values: AskedValues, *, at_hand: bool) -> None:
        """Take a line; its values are sent off now, or where they are at hand, asked for when somebody reads."""
        copy = None
        if not at_hand:
            assert callable(values)
            values, copy = _sent(values())
        self._waiting.append((where, values, copy))

    def lines(self, *, wait: bool) -> Iterator[Line]:
        """Yield the lines whose values have arrived, in order; with `wait` all, as they come."""
        while self._waiting:
            where, values, copy = self._waiting[0]
            if copy is not None and not wait and not copy.has_arrived():
                return
            self._waiting.popleft()
            if callable(values):
                values = {name: float(value) for name, value in values().items()}
            yield where, values


def _sent(values: Values) -> tuple[Callable[[], Values], ArrivingCopy | None]:
    """Send tensors to the host together; return what gives the values once they are there, and their copy."""
    tensors = {name: value.detach() for name, value in values.items() if isinstance(value, Tensor)}
    if not are_late(tensors.values()):
        return lambda: values, None
    copy = send_to_host(torch.stack(bring_together([in_float64(tensor) for tensor in tensors.values()])))
    return lambda: {**values, **dict(zip(tensors, copy.read().tolist(), strict=True))}, copy
