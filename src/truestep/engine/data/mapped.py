# SPDX-License-Identifier: Apache-2.0
"""Map-style data sets: samples by number, loaded by worker processes or here."""

import hashlib
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import Subset

from truestep.core.device_specific import is_async_device
from truestep.engine.automatic_choice import Choice
from truestep.engine.batches import BatchOrigin
from truestep.engine.data.batch_source import BatchSource, BatchWithOrigin
from truestep.engine.data.blocks import uniform_shuffle_warning
from truestep.engine.data.options import DataOptions
from truestep.engine.data.order import BatchBlock, BatchOrder, BatchRequest
from truestep.engine.data.order_construction import describe_data_options
from truestep.engine.data.sample_loading import SeededSamples
from truestep.engine.data.sample_probe import SampleProbe, SampleProbing
from truestep.engine.data.shard_detection import unwrap_whole_dataset
from truestep.engine.data.transfer import batches_to_device
from truestep.engine.data.workers import WorkerPool, choose_num_workers
from truestep.engine.processes.batch_row_shares import WHOLE, RankShare

SPREAD = 6  # samples from all over the data that several ranks compare


class MappedSource(BatchSource):
    """Batches of a data set that has `__len__` and `__getitem__`."""

    def __init__(
        self,
        samples: SeededSamples,
        order: BatchOrder,
        options: DataOptions,
        device: torch.device,
        share: RankShare = WHOLE,
    ) -> None:
        self._samples, self._order, self._device = samples, rank_order(order, share), device
        self.num_batches, self.num_samples = order.num_batches, order.num_samples
        self._makes_columns = options.collate is None
        self._cost = uniform_shuffle_warning(samples.dataset) if options.shuffle is True else None
        # Several ranks compare what they were given, whatever else is to be looked at.
        self._probe = _probe_samples(samples, order, options, is_shared=share.size > 1)
        self._fingerprint = {  # now: weights and lengths of 1e8 samples take seconds
            "kind": "map-style",
            "class": type(unwrap_whole_dataset(samples.dataset)).__qualname__,
            "num_samples": len(samples.dataset),
            "sample": self._probe.sample if self._probe else None,
            "content": self._probe.digest if self._probe and not self._probe.differences else None,
            "order": describe_data_options(options),
        }
        self._facts = _data_facts(self._fingerprint, self._probe, samples.dataset) if share.size > 1 else {}
        if self._probe is None or self._probe.puts_back:
            # Nobody has looked which generators are drawn from, or looking can't tell.
            samples.set_all_generators()
        workers = _choose_workers(self._probe, order.num_samples or len(samples.dataset), options, device)
        self.choices = [
            Choice("loading", "map-style", "the data has __len__ and __getitem__"),
            workers,
            *_randomness_choices(self._probe),
        ]
        count = int(workers.value)
        self._pool = WorkerPool(samples, count, options, pin=is_async_device(device)) if count else None

    def batches(self, epoch: int = 0, start: int = 0) -> Iterator[Any]:
        """Yield the batches of `epoch` from number `start` on."""
        return (made.batch for made in self.made(epoch, start))

    def made(self, epoch: int, start: int = 0) -> Iterator[BatchWithOrigin]:
        """Yield the same batches, each with the number of samples that it was made of."""
        # of the batches that were asked for: workers are ahead of the loop
        sizes: deque[tuple[int, int | None]] = deque()
        requests = _record_request_sizes(self._order.requests(epoch, start), sizes)
        load = self._samples.__getitem__
        host = map(load, requests) if self._pool is None else self._pool.batches(requests)
        for batch in batches_to_device(host, self._device):
            size, whole = sizes.popleft()
            yield BatchWithOrigin(batch, BatchOrigin(size, self._makes_columns, whole))

    def fingerprint(self) -> dict[str, Any]:
        """Return the data set's class, its size, and types, shapes and a hash of its first samples."""
        return self._fingerprint

    def facts(self) -> dict[str, Any]:
        """Return the fingerprint, a hash of samples from all over the data, and one of the indices of a `Subset`."""
        return self._facts

    def what_it_costs(self) -> str | None:
        """Return what a shuffle that knows nothing of the data's shards costs."""
        return self._cost

    def close(self) -> None:
        """End the worker processes."""
        if self._pool is not None:
            self._pool.close()


def _data_facts(fingerprint: dict[str, Any], probe: SampleProbe | None, dataset: Any) -> dict[str, Any]:
    spread = probe.others_digest if probe and not probe.differences else None
    return {**fingerprint, "spread": spread, "indices": _subset_indices_digest(dataset)}


def _subset_indices_digest(dataset: Any) -> str | None:
    """Return a hash of which samples a `Subset` takes, whatever it is a subset of."""
    hashed = hashlib.blake2b(digest_size=8)
    while isinstance(dataset, Subset):
        hashed.update(np.asarray(dataset.indices, dtype=np.int64).tobytes())
        dataset = dataset.dataset
    return hashed.hexdigest()


def _record_request_sizes(
    requests: Iterator[BatchRequest], sizes: deque[tuple[int, int | None]]
) -> Iterator[BatchRequest]:
    for request in requests:
        sizes.append((0 if request.is_empty else len(request.indices), request.num_of_all_ranks))
        yield request


def _probe_samples(
    samples: SeededSamples, order: BatchOrder, options: DataOptions, *, is_shared: bool
) -> SampleProbe | None:
    """Look at a few samples where they will be loaded: a file opened here must not be shared with workers."""
    if not options.check and options.num_workers != "auto" and not is_shared:
        return None
    request = next(order.requests(0, 0))
    spread = np.linspace(0, len(samples.dataset) - 1, SPREAD).astype(np.int64) if is_shared else None
    probing = SampleProbing(samples, spread)
    if options.num_workers == 0 or not samples.draws:
        return probing[request]
    pool = WorkerPool(probing, 1, options)
    try:
        (probe,) = pool.batches(iter([request]))
    finally:
        pool.close()
    assert isinstance(probe, SampleProbe)
    return probe


def _choose_workers(
    probe: SampleProbe | None, num_samples: int, options: DataOptions, device: torch.device
) -> Choice:
    if options.num_workers != "auto":
        return Choice("workers", str(options.num_workers), "as asked")
    assert probe is not None
    return choose_num_workers(probe.sample_seconds, num_samples, device)


def _randomness_choices(probe: SampleProbe | None) -> list[Choice]:
    if probe is None:
        return []
    own = f", {', '.join(probe.generators)}" if probe.generators else ""
    why = f"set from (seed, epoch, position): random, numpy, torch{own}"
    keyed = Choice("sample randomness", "keyed", why)
    if not probe.differences:
        return [keyed]
    differing = ", ".join(probe.differences)
    reason = (
        f"{differing} came out different when drawn twice from the same random state: something draws "
        "from a generator that was not found (made anew each time, a clock, a C library). Use "
        "truestep.sample_rng()"
    )
    return [keyed, Choice("sample randomness", "not repeatable", reason, weakens=True)]


def rank_order(order: BatchOrder, share: RankShare) -> BatchOrder:
    """Return this process's part of an order; the whole where it is alone."""
    return order if share.size == 1 else RankOrder(order, share)


class RankOrder(BatchOrder):
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
            yield BatchBlock(block.position, np.concatenate(taken), [*map(len, taken)], block.sizes)

    def requests(self, epoch: int, start: int) -> Iterator[BatchRequest]:
        """Yield the batches one at a time; where none of a batch's rows is this process's, its first, marked."""
        for request in self._whole.requests(epoch, start):
            total = len(request.indices)
            part = self._share.of(total)
            if part.start == part.stop:
                yield BatchRequest(epoch, request.position, request.indices[:1], True, total)
            else:
                yield BatchRequest(epoch, request.position + part.start, request.indices[part], False, total)
