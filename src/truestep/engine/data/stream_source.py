# SPDX-License-Identifier: Apache-2.0
"""Streams: data that is read from front to back, and what can still be promised about it."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from truestep.core.device_specific import is_async_device
from truestep.core.errors import DataError
from truestep.core.text_formatting import a_type, plural
from truestep.core.user_frames import warn_user
from truestep.engine.automatic_choice import Choice
from truestep.engine.data import stream_messages as words
from truestep.engine.data.batch_digest import ReadRecord
from truestep.engine.data.batch_source import BatchSource, BatchWithOrigin
from truestep.engine.data.empty_batch import describe_batch_types
from truestep.engine.data.endless import endless_reason
from truestep.engine.data.options import DataOptions
from truestep.engine.data.order_construction import describe_data_options
from truestep.engine.data.randomness import SampleRandomness
from truestep.engine.data.stream_batches import (
    SampleStream,
    StreamBatches,
    StreamedBatch,
    StreamStart,
    warn_of_duplicates,
)
from truestep.engine.data.stream_position import StreamPlace, can_resume_stream
from truestep.engine.data.stream_rank_shares import RankBatch, RankStreams, reading_of_rank, rows_of_rank
from truestep.engine.data.stream_state_check import StateTrial, try_stream_state
from truestep.engine.data.transfer import batches_to_device
from truestep.engine.data.workers import WorkerPool
from truestep.engine.processes.batch_row_shares import WHOLE, RankShare

if TYPE_CHECKING:
    from truestep.engine.processes.world import World

Read = Iterator[tuple[StreamedBatch, Any]]


class StreamSource(BatchSource):
    """Batches of an iterable data set, a generator function or any other iterable."""

    def __init__(
        self,
        stream: SampleStream,
        options: DataOptions,
        seed: int,
        device: torch.device,
        *,
        share: RankShare = WHOLE,
        world: "World | None" = None,
    ) -> None:
        words.check_stream_options(stream, options, share)
        self.num_batches = self.num_samples = None
        self._stream, self._options, self._device, self._share = stream, options, device, share
        self._world = world if options.per_rank and share.size > 1 else None
        self._reading = reading_of_rank(options, seed, share)
        self._num_workers = 0 if options.num_workers == "auto" else int(options.num_workers)
        self._readers = max(1, self._num_workers)
        self._place: StreamPlace | None = None  # of the pass that was read last
        self._saved: dict[str, Any] = {}  # of the pass that a resumed run goes on with
        self._trial: StateTrial | None = None  # of the stream's own state, as this process knows of it
        self._is_untried = True  # what was loaded
        self._accepts_others = False
        self._form = ""
        self._pool: WorkerPool | None = None
        self._told: Callable[[Choice], None] = lambda _: None
        asked = options.num_workers != "auto"
        why = "as asked" if asked else "a stream is split among workers only when asked"
        self.choices = [
            Choice("loading", "stream", "the data is an iterable, without __len__ and __getitem__"),
            Choice("workers", str(self._num_workers), why),
            *words.stream_sharing_choices(stream.data, share, per_rank=options.per_rank),
            words.stream_resume_choice(stream, None),
        ]

    @property
    def is_per_rank(self) -> bool:
        """Whether each of several ranks reads a share, and keeps a state, of its own."""
        return self._world is not None

    def form(self) -> str:
        """Return types and shapes of its first batch."""
        return self._form

    def tell_choices(self, told: Callable[[Choice], None]) -> None:
        """Tell all choices, and again each that becomes another one when more is known."""
        super().tell_choices(told)
        self._told = told

    def batches(self, epoch: int = 0, start: int = 0) -> Iterator[Any]:
        """Yield the batches of `epoch` from number `start` on."""
        return (made.batch for made in self.made(epoch, start))

    def made(self, epoch: int, start: int = 0) -> Iterator[BatchWithOrigin]:
        """Yield the batches of `epoch` from number `start` on, each with the number of samples that it was made of.

        A stream whose own state gives the same again goes on from the state that was loaded, if that is where it was taken; any
        other is read again from the front, and its first batches are compared with those that were read before, and thrown away.
        """
        saved = self._saved_state_of_epoch(epoch)
        place = StreamPlace(epoch, self._readers)
        if goes_on := self._can_resume_from_state(saved, start):
            place.load_state_dict(saved)
        read = self._device_batches(place)
        if not goes_on:
            self._reread_and_compare(read, place, start, saved)
        for own in self._batches_of_this_rank(read):
            self._place, self._saved = place, {}
            if (made := self._hand_out_batch(own, place)) is not None:
                self._try_state_once(place)
                yield made
        self._place, self._saved = place, {}
        if not place.batches and self._share.rank == 0:
            warn_user(words.empty_stream_message(self._stream, epoch, self._options))

    @property
    def why_endless(self) -> str:
        """Why a pass of it has no end."""
        return endless_reason(self._stream.data)

    def made_for_evaluation(self) -> Iterator[BatchWithOrigin]:
        """Yield the batches of epoch 0; the place of a training that reads the same stream stays as it is."""
        if why := self.why_endless:
            raise DataError(words.ENDLESS_EVALUATION.format(why=why))
        place = StreamPlace(0, self._readers)
        made = (
            self._hand_out_batch(own, place)
            for own in self._batches_of_this_rank(self._device_batches(place))
        )
        return (each for each in made if each is not None)

    def _saved_state_of_epoch(self, epoch: int) -> dict[str, Any]:
        return self._saved if self._saved.get("epoch") == epoch else {}

    def _hand_out_batch(self, own: RankBatch, place: StreamPlace) -> BatchWithOrigin | None:
        """Count a batch; None where it only says that a worker's stream is over."""
        if own.piece is not None and own.piece.is_end:
            place.note_worker_end(own.piece)
            return None
        if not place.batches and own.piece is not None:
            self._form = describe_batch_types(own.batch, in_columns=own.making.in_columns, with_sizes=True)
        place.advance(own.piece)
        if own.piece is not None and own.piece.stateless and self._trial is None:
            self._record_state_trial(StateTrial(False, own.piece.stateless))
        return BatchWithOrigin(own.batch, own.making, "" if self.is_per_rank else place.record.digest)

    def _batches_of_this_rank(self, read: Read) -> Iterator[RankBatch]:
        collates = self._options.collate is not None
        if self._world is None:
            return rows_of_rank(read, self._share, collates=collates)
        drop_last = self._options.drop_last
        return RankStreams(self._world, self._device, collates=collates, drop_last=drop_last).batches(read)

    def _reread_and_compare(self, read: Read, place: StreamPlace, start: int, saved: dict[str, Any]) -> None:
        """Read what was read before, and compare it; of a share of one rank that ended before others' that is less."""
        before = ReadRecord(saved["read"]) if "read" in saved else None
        is_known = before is not None and saved["batches"] == start
        count = before.batches if before is not None and is_known else start
        while place.batches < count:
            piece, _ = next(read, (None, None))
            if piece is None:
                self._refuse_changed_stream(
                    f"it ended after {place.batches:,} of the {count:,} batches that were read"
                )
                break
            if piece.is_end:
                place.note_worker_end(piece)
                continue
            place.advance(piece)
            if before is not None and not before.agrees_so_far(place.record):
                self._refuse_changed_stream(words.difference_location(before, place.record))
                before = None
        place.batches = start

    def _device_batches(self, place: StreamPlace) -> Read:
        """Yield each batch, on its device, with what is known of it: it may be copied ahead, but is handed out as it is due."""
        arrived: deque[StreamedBatch] = deque()

        def remember_pieces() -> Iterator[Any]:
            for piece in self._read_pieces(place.start()):
                if piece.fault is not None:
                    self._refuse_changed_stream(piece.fault)
                    continue
                arrived.append(piece._replace(batch=None))
                yield piece.batch

        return ((arrived.popleft(), batch) for batch in batches_to_device(remember_pieces(), self._device))

    def _read_pieces(self, start: StreamStart) -> Iterator[StreamedBatch]:
        reader = StreamBatches(self._stream, self._reading)
        reader.start = start
        if not self._num_workers:
            yield from filter(None, reader)
            return
        self._set_epoch(start.epoch)
        pool = self._pool = WorkerPool(
            reader, self._num_workers, self._options, pin=is_async_device(self._device)
        )
        try:
            yield from warn_of_duplicates(pool.batches())
        finally:
            pool.close()

    def _set_epoch(self, epoch: int) -> None:
        """Tell the stream its epoch for workers; what it draws for that is the epoch's."""
        randomness = SampleRandomness(self._reading.seed, self._stream.data)
        with randomness.borrowed():
            randomness.set_generators(randomness.keys("stream", epoch, 0)[0])
            self._stream.set_epoch(epoch)

    def _refuse_changed_stream(self, how: str) -> None:
        """Say that the stream is another than the run was trained on: an error, unless that was asked for."""
        accepted = self._accepts_others
        said = words.changed_stream_message(self._stream, how, self._saved, is_accepted=accepted)
        if not accepted:
            raise DataError(said)
        warn_user(said)

    # ------------------------------------------------------------------ the stream's own state

    def _can_resume_from_state(self, saved: dict[str, Any], start: int) -> bool:
        """Whether the state that was loaded leads there, and gives the same batches; that is tried once."""
        if not start or not can_resume_stream(saved, start):
            return False
        if self._is_untried:
            place = StreamPlace(saved["epoch"], self._readers)
            place.load_state_dict(saved)
            self._is_untried = False
            self._set_epoch(saved["epoch"])
            self._record_state_trial(self._run_state_trial(place))
        return self._trial is not None and self._trial.holds

    def _try_state_once(self, place: StreamPlace) -> None:
        """Try the state in the first pass, when a few batches were read behind it: no other is saved before."""
        keeps = self._share.rank == 0 or self.is_per_rank
        if self._trial is None and keeps and place.worker_states() is not None:
            self._record_state_trial(self._run_state_trial(place))

    def _run_state_trial(self, place: StreamPlace) -> StateTrial:
        return try_stream_state(self._stream, self._reading, place, self._options)

    def _record_state_trial(self, trial: StateTrial) -> None:
        self._trial = trial
        if trial.was_left:
            warn_user(words.untried_state_message(self._stream, trial.why))
        choice = words.stream_resume_choice(self._stream, trial)
        self.choices[-1] = choice
        self._told(choice)

    def fingerprint(self) -> dict[str, Any]:
        """Return the class of the stream; its samples can't be looked at without using them up."""
        shares = {"ranks": self._share.size} if self._options.per_rank else {}
        return shares | {
            "kind": "stream",
            "class": self._stream.kind,
            "order": describe_data_options(self._options),
        }

    def facts(self) -> dict[str, Any]:
        """Return what the ranks compare; of shares not what gives them: a rank may have an empty list."""
        facts = self.fingerprint()
        return {key: facts[key] for key in facts if not (self.is_per_rank and key == "class")}

    def state_dict(self) -> dict[str, Any]:
        """Return where the pass stands: each worker's stream, if it can say so, and what was read."""
        if self._place is None or self._saved:
            return self._saved
        trial = self._trial
        why = {} if trial is None or trial.holds else {"why_not_its_state": trial.why}
        return self._place.state_dict(with_states=trial is not None and trial.holds) | why

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state` when the next batches are asked for."""
        if state:
            words.refuse_other_readers(len(state["workers"]), self._readers)
        self._saved, self._place, self._is_untried = state, None, True

    def accept_other_data(self) -> None:
        """Say where the stream differs from what was read of it, and go on."""
        self._accepts_others = True

    def how_it_resumes(self, epoch: int, start: int) -> str | None:
        """Return from where a resumed run goes on in this data, None where there is nothing to say."""
        saved = self._saved_state_of_epoch(epoch)
        if self._can_resume_from_state(saved, start):
            return "goes on from its own state"
        if not start:
            is_sure = not epoch or self._stream.receives_epoch
            return None if is_sure else words.unknown_epoch_message(self._stream, epoch)
        if "read" not in saved:
            return f"re-reading {plural(start, 'batch', 'batches')}; nothing tells whether they are those that were trained on"
        record = ReadRecord(saved["read"])
        is_known = saved["batches"] == start and record.samples
        samples = plural(record.samples, "sample") if is_known else "samples"
        batches = plural(start, "batch", "batches")
        told = f"re-reading {samples} ({batches}) of its pass, each batch compared with what was trained on"
        why = saved.get("why_not_its_state") if self._trial is None else self._trial.why
        return f"{told}: {why}" if why else told

    @property
    def reads_once(self) -> str:
        """What it is, where it is an iterator without a state."""
        return (
            a_type(self._stream.data) if self._stream.reads_once and not self._stream.may_have_state else ""
        )

    def what_it_costs(self) -> str | None:
        """Return that every rank reads all of it, where that is so."""
        is_whole = self._share.size > 1 and not self._options.per_rank
        return words.shared_stream_cost_message(self._share.size) if is_whole else None

    def close(self) -> None:
        """End the worker processes."""
        if self._pool is not None:
            self._pool.close()
