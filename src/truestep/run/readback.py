# SPDX-License-Identifier: Apache-2.0
"""Bringing values from the device without waiting for it."""

from collections import deque
from typing import Any

import torch
from torch import Tensor

Line = tuple[dict[str, Any], dict[str, float]]


class Readback:
    """Values on their way to the host; on a CPU they are there at once."""

    def __init__(self) -> None:
        self._waiting: deque[
            tuple[dict[str, Any], dict[str, float], list[str], Tensor | list[float], torch.cuda.Event | None]
        ] = deque()

    def push(self, where: dict[str, Any], values: dict[str, Tensor | float]) -> None:
        """Send off a line's values."""
        names = [name for name, value in values.items() if isinstance(value, Tensor)]
        numbers = {name: value for name, value in values.items() if not isinstance(value, Tensor)}
        tensors: list[Tensor] = [values[name] for name in names]  # type: ignore[misc]
        device = next((tensor.device for tensor in tensors if tensor.is_cuda), None)
        if device is None:
            self._waiting.append((where, numbers, names, [float(tensor) for tensor in tensors], None))
            return
        wide = [tensor.detach().double() for tensor in tensors]
        together = torch.stack([tensor.to(device, non_blocking=True) for tensor in wide])
        host = torch.empty(len(tensors), dtype=torch.float64, pin_memory=True).copy_(
            together, non_blocking=True
        )
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        self._waiting.append((where, numbers, names, host, event))

    def ready(self) -> list[Line]:
        """Return the lines whose values have arrived, in order."""
        lines = []
        while self._waiting and (self._waiting[0][4] is None or self._waiting[0][4].query()):  # type: ignore[no-untyped-call]
            lines.append(self._line())
        return lines

    def flush(self) -> list[Line]:
        """Wait for all that is on its way."""
        lines = []
        while self._waiting:
            event = self._waiting[0][4]
            if event is not None:
                event.synchronize()
            lines.append(self._line())
        return lines

    def _line(self) -> Line:
        where, numbers, names, host, _ = self._waiting.popleft()
        arrived = host if isinstance(host, list) else host.tolist()
        return where, {**dict(zip(names, arrived, strict=True)), **numbers}
