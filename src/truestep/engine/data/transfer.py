# SPDX-License-Identifier: Apache-2.0
"""Moving batches to the device: one ahead of the training loop, on a stream of its own."""

from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

from truestep.core import structure


def batches_to_device(batches: Iterator[Any], device: torch.device) -> Iterator[Any]:
    """Return `batches` with everything that can be moved on `device`."""
    if device.type == "cpu":
        return batches
    if device.type == "cuda":
        return _copied_ahead(batches, device)
    return (move_batch(batch, device) for batch in batches)


def move_batch(batch: Any, device: torch.device) -> Any:
    """Return `batch` on `device`; tensors and whatever has a method `to`, the rest as it is."""
    return structure.map_batch_leaves(
        lambda leaf: leaf.to(device, non_blocking=True) if hasattr(leaf, "to") else leaf, batch
    )


def _copied_ahead(batches: Iterator[Any], device: torch.device) -> Iterator[Any]:
    """Copy the next batch while the current one is being used."""
    copying = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    waiting: list[Any] = []
    for batch in batches:
        with torch.cuda.stream(copying):
            moved = move_batch(batch, device)
        waiting.append(moved)
        # The next one is on its way when this one is handed out.
        if len(waiting) > 1:
            yield _arrived(waiting.pop(0), copying, device)
    for moved in waiting:
        yield _arrived(moved, copying, device)


def _arrived(batch: Any, copying: torch.cuda.Stream, device: torch.device) -> Any:
    current = torch.cuda.current_stream(device)
    current.wait_stream(copying)
    for _, leaf in structure.batch_leaves(batch):
        for part in leaf if isinstance(leaf, PackedSequence) else (leaf,):
            # Its memory may be reused only after this stream is done with it. A packed sequence keeps its lengths on the host.
            if isinstance(part, torch.Tensor) and not part.is_cpu:
                part.record_stream(current)
    return batch
