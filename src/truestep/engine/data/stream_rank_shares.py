# SPDX-License-Identifier: Apache-2.0
"""What each rank takes of a stream: its rows of every batch, or the batches of a share that it reads for itself."""

import zlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from truestep.core.errors import BatchError, DataError
from truestep.engine.batches import (
    BatchOrigin,
    EmptyBatchError,
    batch_rows,
    count_examples,
    try_count_examples,
)
from truestep.engine.data.empty_batch import (
    batch_from_outline,
    describe_batch_types,
    make_empty_batch,
    no_rows_error,
    outline_of_batch,
)
from truestep.engine.data.options import DataOptions
from truestep.engine.data.rank_data_check import refuse_other_forms
from truestep.engine.data.stream_batches import StreamedBatch, StreamReading
from truestep.engine.data.transfer import move_batch
from truestep.engine.processes.batch_row_shares import RankShare
from truestep.engine.processes.packing import pack_rank_message, unpack_rank_message

if TYPE_CHECKING:
    from truestep.engine.processes.world import World

COMPARED = 8  # samples at the front by which ranks that read the same are known
_NO_BATCH, _UNCOUNTED = -1, -2
_MEETING = "the next batch of a stream that each rank reads for itself"


class RankBatch(NamedTuple):
    """This rank's part of a batch; no piece where nothing was read for it."""

    piece: StreamedBatch | None
    batch: Any
    making: BatchOrigin


def reading_of_rank(options: DataOptions, seed: int, share: RankShare) -> StreamReading:
    """Return how this process reads: with `per_rank` as many samples a batch as are its rows of one."""
    size, is_shared = options.batch_size, options.per_rank and share.size > 1
    if size is not None and is_shared:
        part = share.of(size)
        size = part.stop - part.start
    return StreamReading(
        seed=seed,
        batch_size=size,
        collate=options.collate or options.stack,
        drop_last=options.drop_last,
        rank=share.rank if is_shared else None,
        num_compared=min(COMPARED, (options.batch_size or share.size) // share.size) if is_shared else 1,
    )


def batch_origin_of(piece: StreamedBatch, *, collates: bool) -> BatchOrigin:
    """Return what is known of a batch: where samples were stacked, its lists are columns."""
    return BatchOrigin(piece.num_samples, piece.num_samples is not None and not collates)


def rows_of_rank(
    read: Iterator[tuple[StreamedBatch, Any]], share: RankShare, *, collates: bool
) -> Iterator[RankBatch]:
    """Yield this rank's rows of the batches of a stream that all ranks read."""
    for piece, batch in read:
        making = batch_origin_of(piece, collates=collates)
        if share.size > 1 and not piece.is_end:
            batch, making = _rank_rows(batch, making, share)
        yield RankBatch(piece, batch, making)


def _rank_rows(batch: Any, making: BatchOrigin, share: RankShare) -> tuple[Any, BatchOrigin]:
    """Return a rank's rows of a batch; one without rows is nobody's, and whoever takes it decides what becomes of it."""
    try:
        count = count_examples(batch, making)
    except EmptyBatchError:
        return batch, making._replace(num_examples=0, num_read=0)
    part = share.of(count)
    rows = batch_rows(batch, part.start, part.stop, making)
    return rows, making._replace(num_examples=part.stop - part.start, num_read=count)


class RankStreams:
    """The batches of streams that each rank reads for itself: all ranks have as many, some of them without rows here.

    Before each batch the ranks tell one another how many rows they have of it, in one small message.
    """

    def __init__(self, world: "World", device: torch.device, *, collates: bool, drop_last: bool) -> None:
        self._world, self._device = world, device
        self._collates, self._drop_last = collates, drop_last
        self._empty: Any = None
        self._uncut: BatchError | None = None  # why a batch without rows can't be made
        self._in_columns = False

    def batches(self, read: Iterator[tuple[StreamedBatch, Any]]) -> Iterator[RankBatch]:
        """Yield this rank's part of every batch until no rank has more; with `drop_last` until one has not."""
        is_first = True
        while True:
            piece, batch = self._next_batch(read)
            making = BatchOrigin() if piece is None else batch_origin_of(piece, collates=self._collates)
            mine = _NO_BATCH if piece is None else _num_rows(batch, making)
            first = int(piece.first[:12], 16) if piece is not None and is_first and piece.first else -1
            form = self._batch_form(piece, batch) if piece is not None and is_first else ""
            number = zlib.crc32(form.encode()) if form else -1
            met = self._world.meet(_MEETING, mine, first, number)
            have = [each[0] != _NO_BATCH for each in met]
            if not any(have) or (self._drop_last and not all(have)):
                return
            if is_first:
                _refuse_same_samples([each[1] for each in met])
                refuse_other_forms(self._world, form, [each[2] for each in met])
                self._learn_structure(piece, batch, have)
                is_first = False
            shares = _rows_per_rank([int(each[0]) for each in met])
            if piece is None:
                yield RankBatch(
                    None, self._make_empty_batch(), BatchOrigin(0, self._in_columns, shares=shares)
                )
            else:
                yield RankBatch(piece, batch, making._replace(shares=shares))

    def _next_batch(self, read: Iterator[tuple[StreamedBatch, Any]]) -> tuple[StreamedBatch | None, Any]:
        return next(((piece, batch) for piece, batch in read if not piece.is_end), (None, None))

    def _batch_form(self, piece: StreamedBatch, batch: Any) -> str:
        return describe_batch_types(
            batch, in_columns=batch_origin_of(piece, collates=self._collates).in_columns
        )

    def _learn_structure(self, piece: StreamedBatch | None, batch: Any, have: list[bool]) -> None:
        """Keep what a batch without rows looks like; a rank that has nothing at all learns it from another."""
        if piece is not None:
            making = batch_origin_of(piece, collates=self._collates)
            self._in_columns = making.in_columns
            try:
                self._empty = make_empty_batch(batch, making)
            except BatchError as error:  # only a rank that has none left needs one
                self._uncut = error
        if all(have):
            return
        source = have.index(True)
        sent = b""
        if self._world.rank == source:
            sent = pack_rank_message([outline_of_batch(self._make_empty_batch()), self._in_columns])
        found = self._world.share_bytes(sent, "what a batch of a stream looks like")[source]
        if piece is None:
            outline, self._in_columns = unpack_rank_message(found)
            self._empty = move_batch(batch_from_outline(outline), self._device)

    def _make_empty_batch(self) -> Any:
        if self._uncut is not None:
            raise no_rows_error("they can't be cut") from self._uncut
        return self._empty


def _num_rows(batch: Any, making: BatchOrigin) -> int:
    """Return how many rows a batch of this rank has."""
    try:
        count = try_count_examples(batch, making) if making.num_examples is None else making.num_examples
    except EmptyBatchError:
        return 0
    return _UNCOUNTED if count is None else count


def _rows_per_rank(numbers: Sequence[int]) -> tuple[int, ...] | None:
    return None if _UNCOUNTED in numbers else tuple(max(number, 0) for number in numbers)


def _refuse_same_samples(firsts: list[float]) -> None:
    """Raise a DataError where two ranks begin with the same samples."""
    known: dict[float, int] = {}
    for rank, first in enumerate(firsts):
        if first >= 0 and known.setdefault(first, rank) != rank:
            raise DataError(
                f"The ranks read the same data: ranks {known[first]} and {rank} began with the same samples, so each sample would "
                "be trained on, or counted, several times. Write run.data(...) without per_rank=True, and each rank takes its own "
                "rows of every batch; or let each rank read a part of its own, as by split_dataset_by_node(data, run.rank, "
                "run.world_size), split_by_node or files[run.rank :: run.world_size]."
            )
