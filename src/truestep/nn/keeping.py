# SPDX-License-Identifier: Apache-2.0
"""Running a model only to look at it: its modes, buffers and hooks, and the random state, are found again as they were."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def only_looking(model: nn.Module) -> Iterator[None]:
    """Run without gradients; put back modes, buffers and torch's random state afterwards, also after an error."""
    tensors = [*model.parameters(), *model.buffers()]
    devices = list({tensor.device for tensor in tensors if tensor.device.type == "cuda"})
    modes = [(module, module.training) for module in model.modules()]
    places = [
        (module, name, buffer, buffer.clone())
        for module in model.modules()
        for name, buffer in module._buffers.items()
        if buffer is not None
    ]
    with torch.random.fork_rng(devices=devices), torch.no_grad():
        try:
            yield
        finally:
            for module, training in modes:
                module.training = training
            for module, name, buffer, value in places:
                buffer.copy_(value)
                module._buffers[name] = buffer
