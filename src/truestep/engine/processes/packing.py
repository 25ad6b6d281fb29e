# SPDX-License-Identifier: Apache-2.0
"""Trees of tensors and plain values as bytes; nothing that could run code is read."""

import io
from typing import Any

import torch


def pack_rank_message(tree: Any) -> bytes:
    """Return a tree of tensors and plain values as bytes."""
    buffer = io.BytesIO()
    torch.save(tree, buffer)
    return buffer.getvalue()


def unpack_rank_message(data: bytes) -> Any:
    """Return the tree that `pack_rank_message` was given, on the CPU."""
    # On the CPU: the sender's device may not be here, or be another rank's.
    return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
