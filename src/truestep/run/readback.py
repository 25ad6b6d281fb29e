# SPDX-License-Identifier: Apache-2.0
"""Bringing values from the device without waiting for it."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from truestep.engine.result import NotedGradientNorm

Line = tuple[dict[str, Any], dict[str, float]]
Values = dict[str, Tensor | NotedGradientNorm | float]


class ProgressReadback:
    """Lines whose values are not read yet: on their way from the device, or on a CPU where several are read together."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[dict[str, Any], Callable[[], Values], torch.cuda.Event | None]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def push(self, where: dict[str, Any], values: Callable[[], Values], *, at_hand: bool) -> None:
        """Take a line; its values are sent off now, or where they are at hand, asked for when somebody reads."""
        event = None
        if not at_hand:
            values, event = _sent(values())
        self._waiting.append((where, values, event))

    def lines(self, *, wait: bool) -> Iterator[Line]:
        """Yield the lines whose values have arrived, in order; with `wait` all, as they come."""
        while self._waiting:
            where, values, event = self._waiting[0]
            if event is not None and wait:
                event.synchronize()
            elif event is not None and not event.query():  # type: ignore[no-untyped-call]
                return
            self._waiting.popleft()
            yield where, {name: float(value) for name, value in values().items()}


def _sent(values: Values) -> tuple[Callable[[], Values], "torch.cuda.Event | None"]:
    """Send tensors to the host together; return what gives the values once that is done, and the event that says so."""
    tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
    device = next((tensor.device for tensor in tensors.values() if tensor.is_cuda), None)
    if device is None:
        return lambda: values, None
    wide = [tensor.detach().double() for tensor in tensors.values()]
    together = torch.stack([tensor.to(device, non_blocking=True) for tensor in wide])
    # into page-locked memory, or the copy would wait for the device
    host = torch.empty(len(tensors), dtype=torch.float64, pin_memory=True).copy_(together, non_blocking=True)
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record()
    return lambda: {**values, **dict(zip(tensors, host.tolist(), strict=True))}, event
