# SPDX-License-Identifier: Apache-2.0
"""A tensor's memory as bytes."""

import torch
from torch import Tensor


def bytes_of(tensor: Tensor) -> memoryview:
    """Return the memory of a contiguous tensor on the host, not a copy of it."""
    return tensor.reshape(-1).view(torch.uint8).numpy().data
