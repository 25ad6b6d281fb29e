# SPDX-License-Identifier: Apache-2.0
"""Streams: data that is read from front to back, and what can still be promised about it."""

from collections import deque
from collections.abc import Iterator
from typing import Any

import torch

from truestep.core.errors import DataError
from truestep.core.frames import warn_user
from truestep.engine.batches import Making, batch_rows, count_examples
from truestep.engine.choices import Choice
from truestep.engine.data.options import DataOptions
from truestep.engine.data.ordering import describe_data_options
from truestep.engine.data.samples import stack_samples
from truestep.engine.data.source import BatchSource, MadeBatch
from truestep.engine.data.streaming import SampleStream, StreamBatches, StreamedBatch, StreamStart
from truestep.engine.data.transfer import batches_to_device
from truestep.engine.data.workers import WorkerPool
from truestep.engine.processes.shares import WHOLE, RankShare

PROMISE = (
    "the data decides its order, so a resumed run goes on exactly only with the same number of workers and "
    "a stream that repeats itself; random draws are keyed by (seed, epoch, worker, position)"
)


class StreamSource(BatchSource):
    """Batches of an iterable data set, a generator function or any other iterable."""

    def __init__(
        self,
        stream: SampleStream,
        options: DataOptions,
        seed: int,
        device: torch.device,
        share: RankShare = WHOLE,
    ) -> None:
        _check(stream, options)
        self._share = share  # every process reads the stream whole: nobody can skip in it
        self.num_batches = self.num_samples = None
        self._stream, self._options, self._seed, self._device = stream, options, seed, device
        self._num_workers = 0 if options.num_workers == "auto" else int(options.num_workers)
        self._now: dict[str, Any] = {}
        self._saved: dict[str, Any] = {}
        self._pool: WorkerPool | None = None
        asked = options.num_workers != "auto"
        why = "as asked" if asked else "a stream is split among workers only when asked"
        self.choices = [
            Choice("loading", "stream", "the data is an iterable, without __len__ and __getitem__"),
            Choice("workers", str(self._num_workers), why),
            Choice("promise", "weaker", PROMISE, weakens=True),
        ]

    def batches(self, epoch: int, start: int = 0) -> Iterator[Any]:
        """Yield the batches of `epoch` from number `start` on."""
        return (made.batch for made in self.made(epoch, start))

    def made(self, epoch: int, start: int = 0) -> Iterator[MadeBatch]:
        """Yield the batches of `epoch` from number `start` on, each with the number of samples that it was made of.

        A stream with a state goes on from the state that was loaded, if that is where it was taken; any
        other is read again from the front, and its first `start` batches are thrown away.
        """
        # For the first pass after a resume alone: the next one begins at its front.
        saved, self._saved = self._saved, {}
        goes_on = saved and (saved["epoch"], saved["batches"]) == (epoch, start)
        workers = saved["workers"] if goes_on else [None] * max(1, self._num_workers)
        self._now = {"epoch": epoch, "batches": start if goes_on else 0, "workers": workers, "turn": 0}
        begin = StreamStart(epoch, saved["workers"], saved["turn"]) if goes_on else StreamStart(epoch)
        arrived: deque[StreamedBatch] = deque()
        moved = batches_to_device(self._remembered(self._pieces(begin), arrived), self._device)
        for number, batch in enumerate(moved, self._now["batches"]):
            piece = arrived.popleft()
            self._advance(piece)
            if number >= start:
                yield self._own_part(batch, piece.num_samples)

    def _own_part(self, batch: Any, num_samples: int | None) -> MadeBatch:
        """Return this process's rows of a batch."""
        making = Making(num_samples, num_samples is not None and self._options.collate is None)
        if self._share.size == 1:
            return MadeBatch(batch, making)
        part = self._share.of(count_examples(batch, making))
        own = batch_rows(batch, part.start, part.stop, making)
        return MadeBatch(own, making._replace(num_examples=part.stop - part.start))

    def _remembered(self, pieces: Iterator[StreamedBatch], arrived: deque[StreamedBatch]) -> Iterator[Any]:
        """Yield the batches; a batch may be copied ahead, but the state is that of the batch handed out."""
        for piece in pieces:
            arrived.append(piece._replace(batch=None))
            yield piece.batch

    def _advance(self, piece: StreamedBatch) -> None:
        workers = [*self._now["workers"]]
        workers[piece.worker] = piece.state
        turn = (piece.worker + 1) % len(workers)
        # A new dict: a save may hold the last one, which `state_dict` gave away as it is.
        self._now = {**self._now, "batches": self._now["batches"] + 1, "workers": workers, "turn": turn}

    def _pieces(self, start: StreamStart) -> Iterator[StreamedBatch]:
        options = self._options
        reader = StreamBatches(
            self._stream,
            self._seed,
            options.batch_size,
            options.collate or stack_samples,
            drop_last=options.drop_last,
        )
        reader.start = start
        if not self._num_workers:
            yield from filter(None, reader)
            return
        pool = self._pool = WorkerPool(reader, self._num_workers, options, pin=self._device.type == "cuda")
        try:
            yield from _without_duplicates(pool.batches())
        finally:
            pool.close()

    def fingerprint(self) -> dict[str, Any]:
        """Return the class of the stream; its samples can't be looked at without using them up."""
        return {
            "kind": "stream",
            "class": type(self._stream.data).__qualname__,
            "order": describe_data_options(self._options),
        }

    def state_dict(self) -> dict[str, Any]:
        """Return where each worker's stream stands after the last batch, if the stream can say so."""
        known = self._now and all(state is not None for state in self._now["workers"])
        return self._now if known else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state` when the next batches are asked for."""
        count = max(1, self._num_workers)
        if state and len(state["workers"]) != count:
            raise DataError(
                f"the stream was saved with {len(state['workers'])} readers and now has {count}: the parts "
                f"they had read don't fit. Write num_workers={len(state['workers'])} as before, or start a "
                "new run."
            )
        self._saved = state

    def close(self) -> None:
        """End the worker processes."""
        if self._pool is not None:
            self._pool.close()


def _without_duplicates(pieces: Iterator[StreamedBatch | None]) -> Iterator[StreamedBatch]:
    """Warn when two workers begin with the same sample: each of them then reads the whole stream."""
    begun: dict[str, int] = {}
    for piece in pieces:
        if piece is None:
            continue
        if piece.first is not None and begun.setdefault(piece.first, piece.worker) != piece.worker:
            warn_user(
                f"workers {begun[piece.first]} and {piece.worker} began with the same sample: each reads "
                "the whole stream, so every sample comes several times an epoch. In __iter__ ask "
                "torch.utils.data.get_worker_info() and read only that worker's part, or write "
                "num_workers=0.",
            )
        yield piece


def _check(stream: SampleStream, options: DataOptions) -> None:
    for name in ("shuffle", "weights", "by_length"):
        if getattr(options, name) not in (None, False):
            raise DataError(
                f"{name}= needs samples that can be asked for by number, and a {type(stream.data).__name__} "
                "can only be read from front to back. Do it inside the stream, or give a data set with "
                "__len__ and __getitem__."
            )
    if options.batch_size is None and (options.collate or options.drop_last):
        raise DataError(
            "collate= and drop_last= make batches of samples, and without batch_size= the items of a "
            "stream are the batches. Write batch_size=32, or leave them out."
        )
    if stream.reads_once and options.num_workers not in ("auto", 0):
        raise DataError(
            f"a {type(stream.data).__name__} can't be split among num_workers={options.num_workers}: each "
            "would read all of it. Give a data set with __iter__ that asks "
            "torch.utils.data.get_worker_info()."
        )
