# SPDX-License-Identifier: Apache-2.0
"""Orders: which samples stand in which batch of an epoch, as a pure function of (seed, epoch, batch)."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from truestep.engine.data.permutation import Indices
from truestep.engine.data.sample_draws import SampleIndices

POSITIONS_AT_ONCE = 8192  # an order is computed this far ahead: numpy's cost per call is paid once


class BatchRequest(NamedTuple):
    """One batch to load: its samples `indices` stand at `position`, `position` + 1, … of `epoch`."""

    epoch: int
    position: int
    indices: Indices
    is_empty: bool = False
    """Whether no row of the batch is wanted; one is loaded nevertheless, since it alone knows what a batch looks like."""
    num_of_all_ranks: int | None = None


class BatchBlock(NamedTuple):
    """Batches that follow one another: `sizes[i]` samples each, the first at `position`.

    Of a rank's parts the sizes of the whole batches stand beside.
    """

    position: int
    indices: Indices
    sizes: list[int]
    sizes_of_all_ranks: list[int] | None = None


class BatchOrder(ABC):
    """The batches of each epoch; `num_batches` and `num_samples` are the same in every epoch, None where nobody knows them."""

    num_batches: int | None
    num_samples: int | None

    @abstractmethod
    def blocks(self, epoch: int, start: int) -> Iterator[BatchBlock]:
        """Yield the batches of `epoch` from number `start` on, several at a time."""

    def requests(self, epoch: int, start: int) -> Iterator[BatchRequest]:
        """Yield the batches of `epoch` from number `start` on, one at a time."""
        for block in self.blocks(epoch, start):
            first = 0
            for size in block.sizes:
                yield BatchRequest(epoch, block.position + first, block.indices[first : first + size])
                first += size


class FixedSizeOrder(BatchOrder):
    """Batches of `batch_size` samples; the last one is shorter where the division leaves a rest."""

    num_batches: int
    num_samples: int

    def __init__(self, draw: SampleIndices, *, num_samples: int, batch_size: int, drop_last: bool) -> None:
        self._draw, self._batch_size = draw, batch_size
        self.num_batches = num_samples // batch_size if drop_last else -(-num_samples // batch_size)
        self.num_samples = min(num_samples, self.num_batches * batch_size)

    def blocks(self, epoch: int, start: int) -> Iterator[BatchBlock]:
        """Yield the batches of `epoch` from number `start` on, several at a time."""
        size = self._batch_size
        for first in range(start, self.num_batches, stride := max(1, POSITIONS_AT_ONCE // size)):
            end = min((first + stride) * size, self.num_samples)
            full, rest = divmod(end - first * size, size)
            indices = self._draw.indices(epoch, np.arange(first * size, end))
            yield BatchBlock(first * size, indices, [size] * full + [rest] * (rest > 0))
