# SPDX-License-Identifier: Apache-2.0
"""Streams: data that is read from front to back, and what can still be promised about it."""

from collections import deque
from collections.abc import Iterator
from typing import Any

import torch

from truestep.core.errors import DataError
from truestep.core.frames import warn_user
from truestep.core.wording import a_type, counted
from truestep.engine.batches import Making, batch_rows, count_examples
from truestep.engine.choices import Choice
from truestep.engine.data.options import DataOptions
from truestep.engine.data.ordering import describe_data_options
from truestep.engine.data.read_digest import ReadRecord
from truestep.engine.data.samples import stack_samples
from truestep.engine.data.source import BatchSource, MadeBatch
from truestep.engine.data.stream_place import StreamPlace, can_go_on
from truestep.engine.data.streaming import SampleStream, StreamBatches, StreamedBatch, StreamStart
from truestep.engine.data.transfer import batches_to_device
from truestep.engine.data.workers import WorkerPool
from truestep.engine.processes.shares import WHOLE, RankShare

PROMISE = (
    "the data decides its order: a resumed run goes on from the stream's own state, or reads its pass again from the front and "
    "compares that with what was trained on"
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
        self._readers = max(1, self._num_workers)
        self._place: StreamPlace | None = None  # of the pass that was read last
        self._saved: dict[str, Any] = {}  # of the pass that a resumed run goes on with
        self._accepts_others = False
        self._pool: WorkerPool | None = None
        asked = options.num_workers != "auto"
        why = "as asked" if asked else "a stream is split among workers only when asked"
        self.choices = [
            Choice("loading", "stream", "the data is an iterable, without __len__ and __getitem__"),
            Choice("workers", str(self._num_workers), why),
            _promise(stream),
        ]

    def batches(self, epoch: int, start: int = 0) -> Iterator[Any]:
        """Yield the batches of `epoch` from number `start` on."""
        return (made.batch for made in self.made(epoch, start))

    def made(self, epoch: int, start: int = 0) -> Iterator[MadeBatch]:
        """Yield the batches of `epoch` from number `start` on, each with the number of samples that it was made of.

        A stream with a state goes on from the state that was loaded, if that is where it was taken; any other is read again from
        the front, and its first `start` batches are compared with those that were read before, and thrown away.
        """
        saved = self._saved if self._saved.get("epoch") == epoch else {}
        place = StreamPlace(epoch, self._readers)
        if goes_on := can_go_on(saved, start):
            place.load_state_dict(saved)
        before = None if goes_on or "read" not in saved else ReadRecord(saved["read"])
        for piece, batch in self._read(place):
            place.advance(piece)
            if place.batches <= start and before is not None and not before.agrees_so_far(place.record):
                self._refuse(_where_it_differs(before, place.record))
                before = None
            if place.batches >= start:
                self._place, self._saved = place, {}
            if place.batches > start:
                yield self._own_part(batch, piece.num_samples, place)
        if place.batches < start:
            self._refuse(f"it ended after {place.batches:,} of the {start:,} batches that were read of it")

    def made_for_evaluation(self) -> Iterator[MadeBatch]:
        """Yield the batches of epoch 0; the place of a training that reads the same stream stays as it is."""
        place = StreamPlace(0, self._readers)
        for piece, batch in self._read(place):
            place.advance(piece)
            yield self._own_part(batch, piece.num_samples, place)

    def _read(self, place: StreamPlace) -> Iterator[tuple[StreamedBatch, Any]]:
        """Yield each batch, on its device, with what is known of it: it may be copied ahead, but is handed out as it is due."""
        arrived: deque[StreamedBatch] = deque()

        def remembered() -> Iterator[Any]:
            for piece in self._pieces(place.start()):
                arrived.append(piece._replace(batch=None))
                yield piece.batch

        return ((arrived.popleft(), batch) for batch in batches_to_device(remembered(), self._device))

    def _own_part(self, batch: Any, num_samples: int | None, place: StreamPlace) -> MadeBatch:
        """Return this process's rows of a batch."""
        read = place.record.digest
        making = Making(num_samples, num_samples is not None and self._options.collate is None)
        if self._share.size == 1:
            return MadeBatch(batch, making, read)
        part = self._share.of(count_examples(batch, making))
        own = batch_rows(batch, part.start, part.stop, making)
        return MadeBatch(own, making._replace(num_examples=part.stop - part.start), read)

    def _refuse(self, how: str) -> None:
        """Say that the stream is another than the run was trained on: an error, unless that was asked for."""
        told = f"this stream ({a_type(self._stream.data)}) is not what this run was trained on: {how}."
        if self._accepts_others:
            warn_user(f"{told} The run goes on with it as it is now, as resume='edited' asks.")
            return
        samples = ReadRecord(self._saved["read"]).samples if "read" in self._saved else 0
        lost = f"the {samples:,} samples" if samples else "the samples"
        raise DataError(
            f"{told} Going on would train again on some of {lost} of this pass, and never on as many others. {self._stream.advice} "
            "ts.Run(..., resume='edited') goes on with the stream as it is now, resume='anew' starts a new run."
        )

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
        """Return where the pass stands: each worker's stream, if it can say so, and what was read."""
        return self._saved if self._place is None or self._saved else self._place.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state` when the next batches are asked for."""
        if state and (before := len(state["workers"])) != self._readers:
            raise DataError(
                f"the stream was saved with {before} readers and now has {self._readers}: the parts they had read don't fit, so "
                f"samples would come twice and others never. Write num_workers={before} as before, or start a new run."
            )
        self._saved, self._place = state, None

    def accept_other_data(self) -> None:
        """Say where the stream differs from what was read of it, and go on."""
        self._accepts_others = True

    def how_it_resumes(self, epoch: int, start: int) -> str | None:
        """Return from where a resumed run goes on in this data, None where there is nothing to say."""
        saved = self._saved if self._saved.get("epoch") == epoch else {}
        if not start or can_go_on(saved, start):
            return "goes on from its own state" if start else None
        if "read" not in saved:
            return f"re-reading {counted(start, 'batch', 'batches')}; nothing tells whether they are those that were trained on"
        record = ReadRecord(saved["read"])
        samples = (
            counted(record.samples, "sample") if record.batches == start and record.samples else "samples"
        )
        batches = counted(start, "batch", "batches")
        return f"re-reading {samples} ({batches}) of its pass, each batch compared with what was trained on"

    def close(self) -> None:
        """End the worker processes."""
        if self._pool is not None:
            self._pool.close()


def _where_it_differs(before: ReadRecord, again: ReadRecord) -> str:
    same, other = before.differs_at(again) or (0, 1)
    if other == same + 1:
        return f"it differs from batch {other:,} on"
    return f"it differs between batches {same + 1:,} and {other:,}"


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


def _promise(stream: SampleStream) -> Choice:
    if stream.may_have_state:
        return Choice(
            "promise", "weaker", f"{PROMISE}; whether its state is all of it nobody has tried", weakens=True
        )
    return Choice("promise", "exact, or refused", PROMISE)


def _check(stream: SampleStream, options: DataOptions) -> None:
    for name in ("shuffle", "weights", "by_length"):
        if getattr(options, name) not in (None, False):
            raise DataError(
                f"{name}= needs samples that can be asked for by number, and {a_type(stream.data)} "
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
            f"{a_type(stream.data)} can't be split among num_workers={options.num_workers}: each "
            "would read all of it. Give a data set with __iter__ that asks "
            "torch.utils.data.get_worker_info()."
        )
