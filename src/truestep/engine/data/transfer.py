# SPDX-License-Identifier: Apache-2.0
"""Moving batches to the device: one ahead of the training loop, on a stream of its own."""

from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

from truestep.core import nested_structures
from truestep.core.device_specific import CopyStream, allows_non_blocking_copy, is_async_device, is_cpu_device


def batches_to_device(batches: Iterator[Any], device: torch.device) -> Iterator[Any]:
    """Return `batches` with everything that can be moved on `device`."""
    if is_cpu_device(device):
        return batches
    if is_async_device(device):
        return _copy_ahead(batches, device)
    return (move_batch(batch, device) for batch in batches)


def move_batch(batch: Any, device: torch.device) -> Any:
    """Return `batch` on `device`; tensors and whatever has a method `to`, the rest as it is."""
    unwaited = allows_non_blocking_copy(device)
    return nested_structures.map_batch_leaves(
        lambda leaf: leaf.to(device, non_blocking=unwaited) if hasattr(leaf, "to") else leaf, batch
    )


def _copy_ahead(batches: Iterator[Any], device: torch.device) -> Iterator[Any]:
    """Copy the next batch while the current one is being used."""
    stream = CopyStream(device)
    waiting: list[Any] = []
    for batch in batches:
        with stream.copying():
            moved = move_batch(batch, device)
        waiting.append(moved)
        # The next one is on its way when this one is handed out.
        if len(waiting) > 1:
            yield _wait_for_copy(waiting.pop(0), stream)
    for moved in waiting:
        yield _wait_for_copy(moved, stream)


def _wait_for_copy(batch: Any, stream: CopyStream) -> Any:
    leaves = [leaf for _, leaf in nested_structures.batch_leaves(batch)]
    parts = [part for leaf in leaves for part in (leaf if isinstance(leaf, PackedSequence) else (leaf,))]
    stream.hand_to_current_stream(part for part in parts if isinstance(part, torch.Tensor))
    return batch
