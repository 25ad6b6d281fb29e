# SPDX-License-Identifier: Apache-2.0
"""Tensors in memory: batches are taken by index, many at a time; no worker, no collating, no DataLoader."""

from collections.abc import Iterator
from itertools import repeat
from typing import Any

import numpy as np
import torch

from truestep.core.device_specific import free_device_bytes, is_async_device, is_cpu_device, send_to_device
from truestep.engine.automatic_choice import Choice
from truestep.engine.batches import BatchOrigin
from truestep.engine.data.batch_source import BatchSource, BatchWithOrigin
from truestep.engine.data.columns import Column, DataColumns, take_sample_array_rows, take_sample_rows
from truestep.engine.data.options import DataOptions
from truestep.engine.data.order import BatchBlock, BatchOrder
from truestep.engine.data.order_construction import describe_data_options

BYTES_AT_ONCE = 1 << 20  # small batches are gathered together up to this size, then split into views
DEVICE_BYTES_AT_ONCE = 1 << 26
LOOKED_AT = 4096  # labels, from all over the data
SHARE_OF_DEVICE = 0.25  # data up to this share of the device's free memory moves there


class MemorySource(BatchSource):
    """Batches of rows of tensors, which may live on the device already."""

    def __init__(
        self, columns: DataColumns, order: BatchOrder, options: DataOptions, device: torch.device
    ) -> None:
        self._fingerprint = {  # now, before anything is moved or changed
            "kind": "memory",
            "num_samples": columns.num_samples,
            "sample": columns.describe_sample(),
            "content": columns.digest(),
            "order": describe_data_options(options),
        }
        self._columns, self._order, self._device = columns, order, device
        self._is_ordered = not options.shuffle and options.weights is None and options.by_length is None
        self.num_batches, self.num_samples = order.num_batches, order.num_samples
        place = _choose_data_device(columns, options.on_device, device)
        why = "the data is tensors: a batch is one indexing, and workers would only copy it again"
        self.choices = [
            Choice("loading", "from a mapped file" if columns.is_mapped else "in memory", why),
            place,
        ]
        is_there = any(_is_on_device(leaf, device) for leaf in columns.leaves)
        self._gathers_on_device = not is_cpu_device(device) and is_there

    def batches(self, epoch: int = 0, start: int = 0) -> Iterator[Any]:
        """Yield the batches of `epoch` from number `start` on; each is a copy, never a view of the data."""
        return (made.batch for made in self.made(epoch, start))

    def made(self, epoch: int, start: int = 0) -> Iterator[BatchWithOrigin]:
        """Yield the same batches, each with the number of its rows."""
        limit = DEVICE_BYTES_AT_ONCE if self._gathers_on_device else BYTES_AT_ONCE
        samples = max(1, limit // max(1, self._columns.bytes_per_sample))
        for block in self._order.blocks(epoch, start):
            for piece in _split_block(block, samples):
                parts = [self._take_rows(leaf, piece) for leaf in self._columns.leaves]
                rows = zip(*parts, strict=True)
                filled = rows if self._columns.is_flat_tuple else map(self._columns.fill, rows)
                wholes = piece.sizes_of_all_ranks or repeat(None)
                yield from map(BatchWithOrigin, filled, map(BatchOrigin, piece.sizes, repeat(True), wholes))

    def fingerprint(self) -> dict[str, Any]:
        """Return number, types, shapes and a hash of a few rows."""
        return self._fingerprint

    def is_sorted_by_class(self) -> bool:
        """Whether the last of several tensors holds whole numbers, few different ones and in order, and nothing shuffles them."""
        leaves = self._columns.leaves
        is_labelled = self._columns.is_flat_tuple and len(leaves) > 1
        if not self._is_ordered or not is_labelled or (self.num_batches or 0) < 2:
            return False
        number, rows = self.num_samples or 0, self._columns.rows
        looked_at = np.arange(0, number, max(1, number // LOOKED_AT))
        looked_at = looked_at if rows is None else np.asarray(rows)[looked_at]
        last = leaves[-1]
        labels = last[torch.from_numpy(looked_at)] if isinstance(last, torch.Tensor) else last[looked_at]
        labels = np.asarray(labels.cpu() if isinstance(labels, torch.Tensor) else labels)
        if labels.ndim != 1 or labels.dtype.kind not in "iu" or not (labels[1:] >= labels[:-1]).all():
            return False
        return 1 < len(np.unique(labels)) <= len(labels) // 4  # else they number the samples

    def _take_rows(self, leaf: Column, piece: BatchBlock) -> Any:
        rows = piece.indices if self._columns.rows is None else self._columns.rows[piece.indices]
        if not isinstance(leaf, torch.Tensor):
            taken = take_sample_array_rows(leaf, rows)
            if isinstance(taken, np.ndarray):  # text and the like stay as they are
                return np.split(taken, np.cumsum(piece.sizes)[:-1])
            return torch.split_with_sizes(taken.to(self._device), piece.sizes)
        if leaf.is_cpu:
            taken = take_sample_rows(leaf, rows)
        else:
            taken = leaf.index_select(0, send_to_device(torch.from_numpy(rows), leaf.device))
        return torch.split_with_sizes(send_to_device(taken, self._device), piece.sizes)


def _is_on_device(leaf: Column, device: torch.device) -> bool:
    here = leaf.device if isinstance(leaf, torch.Tensor) else torch.device("cpu")
    return here.type == device.type and (device.index is None or here.index == device.index)


def _split_block(block: BatchBlock, samples: int) -> Iterator[BatchBlock]:
    """Cut `block` between batches into pieces of about `samples` samples."""
    begin, first = 0, 0
    while begin < len(block.sizes):
        end, count = begin + 1, block.sizes[begin]
        while end < len(block.sizes) and count + block.sizes[end] <= samples:
            count, end = count + block.sizes[end], end + 1
        wholes = block.sizes_of_all_ranks and block.sizes_of_all_ranks[begin:end]
        indices = block.indices[first : first + count]
        yield BatchBlock(block.position + first, indices, block.sizes[begin:end], wholes)
        begin, first = end, first + count


def _choose_data_device(columns: DataColumns, on_device: bool | None, device: torch.device) -> Choice:
    """Move the columns to the device where that is asked for or pays, and say why."""
    size = sum(leaf.nbytes for leaf in columns.leaves)
    if all(_is_on_device(leaf, device) for leaf in columns.leaves):
        if columns.is_mapped:
            return Choice(
                "data kept on", "disk", "it is mapped: what a batch needs is read when the batch is made"
            )
        return Choice("data kept on", str(device), "the tensors are there already")
    if on_device is None and is_async_device(device):
        free = free_device_bytes(device)
        on_device = size <= SHARE_OF_DEVICE * free
        reason = f"{size / 2**20:,.0f} MiB of data, {free / 2**20:,.0f} MiB free on the device"
    else:
        reason = "as asked" if on_device is not None else "copied batch by batch"
    if on_device:
        columns.to(device)
    return Choice("data kept on", str(device) if on_device else "cpu", reason)
