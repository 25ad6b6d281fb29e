# SPDX-License-Identifier: Apache-2.0
"""Keeping an update to its own learners: everybody else is frozen meanwhile and found again as it was."""

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn

Place = tuple[nn.Module, str]


class BufferSnapshot:
    """The buffers at given places, copied, to be put back."""

    def __init__(self, places: Sequence[Place]) -> None:
        self._kept = [
            (module, name, buffer, buffer.clone())
            for module, name in places
            if (buffer := module._buffers[name]) is not None
        ]

    def restore(self) -> None:
        """Put every buffer back; all are written, as batch normalisation changes its own without counting a version."""
        if not self._kept:
            return
        _, _, buffers, copies = zip(*self._kept, strict=True)
        with torch.no_grad():
            torch._foreach_copy_(buffers, copies)
        for module, name, buffer, _ in self._kept:
            if module._buffers[name] is not buffer:
                module._buffers[name] = buffer


class Statistics:
    """The running statistics of one learner, copied before each update, to be put back where the update is not applied.

    Without this one batch with a NaN would stay in a batch normalisation for ever, though its update was skipped.
    """

    def __init__(self, places: Sequence[Place]) -> None:
        self.places = places
        self._buffers: list[Tensor] = []
        self._copies: list[Tensor] = []

    def keep(self) -> None:
        """Copy what is there now, into the same memory each time."""
        buffers = [buffer for module, name in self.places if (buffer := module._buffers[name]) is not None]
        if [id(buffer) for buffer in buffers] != [id(buffer) for buffer in self._buffers]:
            self._buffers, self._copies = buffers, [buffer.clone() for buffer in buffers]
        elif buffers:
            torch._foreach_copy_(self._copies, buffers)

    @torch.no_grad()
    def restore(self) -> None:
        """Put back what was kept."""
        if self._buffers:
            torch._foreach_copy_(self._buffers, self._copies)

    @torch.no_grad()
    def restore_where(self, flag: Tensor) -> None:
        """Put back what was kept if `flag`, which stays on the device, is set."""
        for buffer, copy in zip(self._buffers, self._copies, strict=True):
            buffer.copy_(torch.where(flag.bool(), copy, buffer))


def statistics_places(module: nn.Module) -> list[Place]:
    """Return where running statistics are that one bad batch can spoil: normalisation layers and spectral norms."""
    statistics = ("running_mean", "running_var", "num_batches_tracked")
    norms = [
        (part, name)
        for part, name in buffer_places(module)
        if isinstance(part, nn.modules.batchnorm._NormBase) and name in statistics
    ]
    return norms + spectral_places(module)


def buffer_places(module: nn.Module) -> list[Place]:
    """Return where the buffers of `module` and its parts are."""
    return [
        (part, name)
        for part in module.modules()
        for name, buffer in part._buffers.items()
        if buffer is not None
    ]


def spectral_places(module: nn.Module) -> list[Place]:
    """Return where the power-iteration vectors of spectral norms are (today's parametrization and the old hook)."""
    return [
        (part, name)
        for part, name in buffer_places(module)
        if (type(part).__name__ == "_SpectralNorm" and name in ("_u", "_v")) or _is_old_spectral(part, name)
    ]


def _is_old_spectral(part: nn.Module, name: str) -> bool:
    hooks: list[Any] = list(part._forward_pre_hooks.values())
    return any(
        type(hook).__name__ == "SpectralNorm" and name in (f"{hook.name}_u", f"{hook.name}_v")
        for hook in hooks
    )


class Isolation:
    """While it is entered, the parameters of `others` need no gradient; afterwards they and their buffers are as before.

    Freezing by `requires_grad_` keeps FSDP's hooks working (`backward(inputs=...)` loses gradients there), and the buffers
    go back only after the backward, which may still need what the forward wrote.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], places: Sequence[Place]) -> None:
        self._parameters = list(parameters)
        self._places = places
        self._frozen: list[Tensor] = []

    def __enter__(self) -> Self:
        self._frozen = [parameter for parameter in self._parameters if parameter.requires_grad]
        for parameter in self._frozen:
            parameter.requires_grad_(False)
        self._buffers = BufferSnapshot(self._places)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for parameter in self._frozen:
            parameter.requires_grad_(True)
        self._frozen = []
        self._buffers.restore()
