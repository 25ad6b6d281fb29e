# SPDX-License-Identifier: Apache-2.0
"""Running a model only to look at it: its modes, buffers and hooks, and the random state, are found again as they were."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from truestep.core.buffers import BufferSnapshot, buffer_places


@contextmanager
def only_looking(model: nn.Module) -> Iterator[None]:
    """Run without gradients; put back modes, buffers and torch's random state afterwards, also after an error."""
    tensors = [*model.parameters(), *model.buffers()]
    devices = list({tensor.device for tensor in tensors if tensor.device.type == "cuda"})
    modes = [(module, module.training) for module in model.modules()]
    buffers = BufferSnapshot(buffer_places(model))
    with torch.random.fork_rng(devices=devices), torch.no_grad():
        try:
            yield
        finally:
            for module, training in modes:
                module.training = training
            buffers.restore()
