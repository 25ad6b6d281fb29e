# SPDX-License-Identifier: Apache-2.0
"""Each process's rows of every global batch: the order of samples, and what is drawn for each, know of no process."""

from collections.abc import Iterator

import numpy as np

from truestep.engine.data.order import BatchBlock, BatchOrder, BatchRequest
from truestep.engine.processes.shares import RankShare


def shared_order(order: BatchOrder, share: RankShare) -> BatchOrder:
    """Return this process's part of an order; the whole where it is alone."""
    return order if share.size == 1 else SharedOrder(order, share)


class SharedOrder(BatchOrder):
    """The rows of each batch that one process takes; the batches are counted as the whole ones are."""

    def __init__(self, whole: BatchOrder, share: RankShare) -> None:
        self._whole, self._share = whole, share
        self.num_batches, self.num_samples = whole.num_batches, whole.num_samples

    def blocks(self, epoch: int, start: int) -> Iterator[BatchBlock]:
        """Yield the batches of `epoch` from number `start` on, several at a time; some may be empty."""
        for block in self._whole.blocks(epoch, start):
            parts = [self._share.of(size) for size in block.sizes]
            firsts = np.cumsum([0, *block.sizes[:-1]])
            taken = [
                block.indices[first + part.start : first + part.stop]
                for first, part in zip(firsts, parts, strict=True)
            ]
            yield BatchBlock(
                block.position, np.concatenate(taken), [len(each) for each in taken], block.sizes
            )

    def requests(self, epoch: int, start: int) -> Iterator[BatchRequest]:
        """Yield the batches one at a time; where none of a batch's rows is this process's, its first, marked."""
        for request in self._whole.requests(epoch, start):
            total = len(request.indices)
            part = self._share.of(total)
            if part.start == part.stop:
                yield BatchRequest(epoch, request.position, request.indices[:1], True, total)
            else:
                yield BatchRequest(epoch, request.position + part.start, request.indices[part], False, total)
