# SPDX-License-Identifier: Apache-2.0
"""A tensor's memory: as bytes, whatever its type and its strides, and how often it was written to."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # reading code loads no torch
    from torch import Tensor


def bytes_of_contiguous(tensor: "Tensor") -> "Tensor":
    """Return the memory of a contiguous tensor as one dimension of bytes, not a copy of it.

    torch calls a tensor of one element contiguous whatever its stride (a row of `x[:, ::2]`), keeps that stride through
    `contiguous()` and `reshape()`, and then refuses to view it as bytes: so the stride is said.
    """
    import torch

    # Bytes, since NumPy has no bfloat16 or float8; flat first, since torch gives no tensor of 0 dimensions another item size.
    return tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8)


def tensor_version(tensor: "Tensor") -> int:
    """Return how often a tensor was written to; torch counts it not for those made in inference mode."""
    return -1 if tensor.is_inference() else tensor._version
