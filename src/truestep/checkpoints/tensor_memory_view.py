# SPDX-License-Identifier: Apache-2.0
"""A tensor's memory as bytes."""

from torch import Tensor

from truestep.core.tensor_bytes import bytes_of_contiguous


def tensor_memoryview(tensor: Tensor) -> memoryview:
    """Return the memory of a contiguous tensor on the host, not a copy of it."""
    return bytes_of_contiguous(tensor).numpy().data
