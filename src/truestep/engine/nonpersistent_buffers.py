# SPDX-License-Identifier: Apache-2.0
"""Buffers that a module's state dict leaves out (`persistent=False`), where training has made more of them than the code does.

A mask or a table that the constructor computes need not be saved. A count or a memory that the forward changes must be, or a
resumed run begins it anew.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from truestep.core.tensor_bytes import tensor_version


class TransientLearnerBuffers:
    """Knows the non-persistent buffers of a module as they were made, and which have changed since."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._made = {name: (buffer, tensor_version(buffer)) for name, _, buffer in self._buffers()}
        self.made_persistent = self.persistent_buffer_names()

    def persistent_buffer_names(self) -> set[str]:
        """Return the names of the buffers that the state dict holds."""
        return {
            f"{prefix}.{name}" if prefix else name
            for prefix, part in self._module.named_modules()
            for name, buffer in part._buffers.items()
            if buffer is not None and name not in part._non_persistent_buffers_set
        }

    def _buffers(self) -> Iterator[tuple[str, nn.Module, Tensor]]:
        for prefix, part in self._module.named_modules():
            for name in sorted(part._non_persistent_buffers_set):
                buffer = part._buffers.get(name)
                if buffer is not None:
                    yield f"{prefix}.{name}" if prefix else name, part, buffer

    def state_dict(self) -> dict[str, Tensor]:
        """Return those that were written to or replaced."""
        changed = {}
        for name, _, buffer in self._buffers():
            made, version = self._made.get(name, (None, None))
            if buffer is not made or tensor_version(buffer) != version:
                changed[name] = buffer
        return changed

    def unknown(self, state: dict[str, Tensor]) -> list[str]:
        """Return which names of a state no non-persistent buffer has."""
        known = {name for name, _, _ in self._buffers()}
        return [name for name in state if name not in known]

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Put those of `state` back, also where they had grown; the others stay as the code made them."""
        for name, part, buffer in list(self._buffers()):
            saved = state.get(name)
            if saved is None:
                continue
            if saved.shape == buffer.shape and saved.dtype == buffer.dtype:
                buffer.copy_(saved)
            else:
                part._buffers[name.rpartition(".")[2]] = saved.to(buffer.device, copy=True)
