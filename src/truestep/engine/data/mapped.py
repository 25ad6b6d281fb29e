# SPDX-License-Identifier: Apache-2.0
"""Map-style data sets: samples by number, loaded by worker processes or here."""

from collections.abc import Iterator
from typing import Any

import torch

from truestep.engine.choices import Choice
from truestep.engine.data.options import DataOptions
from truestep.engine.data.order import Order
from truestep.engine.data.samples import Samples
from truestep.engine.data.source import BatchSource
from truestep.engine.data.transfer import to_device
from truestep.engine.data.workers import WorkerPool


class MappedSource(BatchSource):
    """Batches of a data set that has `__len__` and `__getitem__`."""

    def __init__(self, samples: Samples, order: Order, options: DataOptions, device: torch.device) -> None:
        self._samples, self._order, self._device = samples, order, device
        self.num_batches, self.num_samples = order.num_batches, order.num_samples
        self.choices = [Choice("loading", "map-style", "the data has __len__ and __getitem__")]
        workers = 0 if options.num_workers == "auto" else int(options.num_workers)
        self._pool = WorkerPool(samples, workers, options, pin=device.type == "cuda") if workers else None

    def batches(self, epoch: int, start: int = 0) -> Iterator[Any]:
        """Yield the batches of `epoch` from number `start` on."""
        requests = self._order.requests(epoch, start)
        host = (
            map(self._samples.__getitem__, requests) if self._pool is None else self._pool.batches(requests)
        )
        return to_device(host, self._device)

    def fingerprint(self) -> dict[str, Any]:
        """Return the data set's class, its size and a hash of its first samples."""
        return {"kind": "map-style", "class": type(self._samples.dataset).__qualname__}

    def close(self) -> None:
        """End the worker processes."""
        if self._pool is not None:
            self._pool.close()
