# SPDX-License-Identifier: Apache-2.0
"""A tensor's memory as bytes."""

import torch
from torch import Tensor


def saved_bytes_of(tensor: Tensor) -> memoryview:
    """Return the memory of a contiguous tensor on the host, not a copy of it."""
    # Bytes, since NumPy has no bfloat16 or float8; flat first, since torch gives no tensor of 0 dimensions another item size.
    return tensor.reshape(-1).view(torch.uint8).numpy().data
