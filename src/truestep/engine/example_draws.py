# SPDX-License-Identifier: Apache-2.0
"""What `ts.rand` and `ts.randn` draw within the updates of a training.

The rows of a batch are drawn in blocks. Each block has a generator keyed by the update, the draw and the block's first row, so
a part of the batch draws only the blocks that its rows lie in, and neither its size nor the others' changes them.
"""

import math
from collections.abc import Callable, Iterator
from threading import get_ident
from typing import NamedTuple

import torch
from torch import Tensor

from truestep.core.errors import LossError
from truestep.core.per_example_random import DrawSpec, ExampleDrawer, open_draws
from truestep.core.random_streams import random_key

# A generator costs about as much as a thousand numbers: blocks double from there, so that neither few nor many rows cost much more.
FIRST_BLOCK, LARGEST_BLOCK = 1024, 16384


class _DrawPosition(NamedTuple):
    """Which draw of an update it is, and the place of its first row in the batch."""

    ordinal: int
    start: int


class PlaceInBatch(NamedTuple):
    """Which rows of the whole batch a process has: so many from `first` on, of so many in all."""

    first: int
    num_here: int
    total: int


class ExampleDraws:
    """The draws of the updates of one training, one update at a time."""

    def __init__(self, key: Callable[[], int]) -> None:
        self._key = key
        self.outer: ExampleDrawer | None = None
        self._generators: dict[torch.device, torch.Generator] = {}
        self._kept: dict[int, tuple[tuple[DrawSpec, int, int], Tensor]] = {}
        self._drawn: dict[int, _DrawPosition] = {}
        self._rows: dict[int, int] = {}
        """How many rows each draw of a part had by now, where the parts' places are not known."""
        self.thread = 0
        """Which made the newest update; 0 before the first."""
        self._update_key = 0
        self._first_row = 0
        self.place_here: PlaceInBatch | None = None
        """Which rows of the batch this process has, where the parts' sizes are not known beforehand and this is."""
        self._is_elsewhere = False
        self._start: int | Callable[[], int] | None = 0
        self._after = 0
        self._size: int | None = None
        self._count = 0

    @property
    def are_used(self) -> bool:
        """Whether anything was drawn in the update that is under way."""
        return self._update_key != 0

    def open(self) -> None:
        """Begin an update, with its first part to come: draws of this thread are its own until `close`."""
        self.thread = thread = get_ident()
        # an update may be made within the loss of another run's, whose draws go on afterwards
        self.outer = open_draws.get(thread)
        open_draws[thread] = self
        self._first_row, self.place_here, self._is_elsewhere = 0, None, False
        self._update_key = 0

    def close(self) -> None:
        """End the update."""
        newest = open_draws[self.thread]
        if newest is not self:  # an update of another run was begun in this one, and ends later
            while newest.outer is not self:
                assert newest.outer is not None
                newest = newest.outer
            newest.outer = self.outer
        elif self.outer is None:
            del open_draws[self.thread]
        else:
            open_draws[self.thread] = self.outer
        self.outer = None
        if self._update_key:  # something was drawn
            self._kept.clear()
            self._drawn.clear()
            self._rows.clear()

    def begin_rank_share(self, rank: int, place: PlaceInBatch | None) -> None:
        """Begin an update whose parts, of unknown sizes, are of the rows that this process has; None: nobody knows which."""
        # beyond any batch, where rows are drawn that are nobody else's
        self._first_row, self.place_here = (rank + 1) << 40, place

    @property
    def mismatched_row_count(self) -> int | None:
        """How many rows were drawn in this share, where that is not once for each row here, twice, or more often; else None."""
        if self.place_here is None:
            return None
        here, drawn = self.place_here.num_here, self._rows.values()
        return next((rows for rows in drawn if rows and (self._is_elsewhere or rows % here)), None)

    def begin(
        self, start: int | Callable[[], int] | None, size: int | None = None, *, after: int = 0
    ) -> None:
        """Begin a part of the batch: its first row, so many `after` one that may be asked for, and its size (None: any).

        Without a start it is after the rows of the parts before.
        """
        self._start, self._size, self._after, self._count = start, size, after, 0

    @property
    def num_examples_of_part(self) -> int | None:
        """How many examples the part has that this thread is at; None of a whole batch, and outside of a loss."""
        is_here = open_draws.get(get_ident()) is self and torch._C._current_graph_task_id() == -1
        return self._size if is_here else None

    def rows(self, kind: DrawSpec, num_rows: int | None) -> Tensor:
        """Return so many rows of this part; None: one, without a leading dimension, for the whole batch."""
        # rows that belong to no example would be others under another split
        if num_rows is not None and self._size not in (None, num_rows):
            raise LossError(_wrong_row_count_message(kind, num_rows, self._size))
        if not self._update_key:
            self._update_key = self._key()
        ordinal, start = self._identify_draw(num_rows or 0)
        if num_rows is None:
            # A copy: the block is kept for the next part, and the loss may write to what it got.
            return self._draw_block(kind, ordinal, 0, 1)[0].clone()
        # written block by block into one tensor: a block that lies wholly in this part is drawn in place
        stop = start + num_rows
        rows = torch.empty((num_rows, *kind.row), dtype=kind.dtype, device=kind.device)
        for begin, end in _block_ranges(start, stop, math.prod(kind.row)):
            first, last = max(begin, start), min(end, stop)
            into = rows[first - start : last - start]
            if last - first == end - begin:
                kind.draw(into.shape, generator=self._seeded_generator(kind, ordinal, begin), out=into)
            else:
                into.copy_(self._draw_block(kind, ordinal, begin, end)[first - begin : last - begin])
        return rows

    def _identify_draw(self, num_rows: int) -> _DrawPosition:
        """Say which draw this is.

        A number from torch's stream recognises it when a checkpointed layer runs again in the backward: with the same state
        of that stream, as `torch.utils.checkpoint` puts back.
        """
        token = int(torch.empty((), dtype=torch.int64, device="cpu").random_())
        if torch._C._current_graph_task_id() != -1:
            if token not in self._drawn:
                raise LossError(
                    "ts.rand or ts.randn was called in a backward, where its rows are known only if it runs again what the forward "
                    "ran. With torch.utils.checkpoint keep preserve_rng_state=True, its default."
                )
            return self._drawn[token]
        # the number of the draw within this part: the same line draws the same block in each part
        ordinal = self._count
        self._count += 1
        if self._start is None:
            done = self._rows.get(ordinal, 0)
            self._rows[ordinal] = done + num_rows
            start = self._row_in_whole_batch(done, num_rows)
        else:
            start = self._after + (self._start() if callable(self._start) else self._start)
        drawn = self._drawn[token] = _DrawPosition(ordinal, start)
        return drawn

    def _row_in_whole_batch(self, done: int, num_rows: int) -> int:
        """Return the place in the whole batch of rows that follow so many of this process.

        Rows that are drawn once more, for another loss, follow those of all processes, as they do in one.
        """
        if self.place_here is None:
            return self._first_row + done
        first, here, total = self.place_here
        again, within = divmod(done, here) if here else (0, 0)
        if within + num_rows <= here:
            return again * total + first + within
        self._is_elsewhere = True
        return self._first_row + done

    def _draw_block(self, kind: DrawSpec, ordinal: int, begin: int, end: int) -> Tensor:
        """Return a block, kept for the next part, which may begin in the middle of it."""
        what = (kind, begin, end)
        kept = self._kept.get(ordinal)
        if kept is None or kept[0] != what:
            made = {
                "generator": self._seeded_generator(kind, ordinal, begin),
                "dtype": kind.dtype,
                "device": kind.device,
            }
            block = kind.draw((end - begin, *kind.row), **made)
            kept = self._kept[ordinal] = (what, block)
        return kept[1]

    def _seeded_generator(self, kind: DrawSpec, ordinal: int, row: int) -> torch.Generator:
        generator = self._generators.get(kind.device)
        if generator is None:
            generator = self._generators[kind.device] = torch.Generator(kind.device)
        # One generator for each device, seeded again for each block: making one costs more than seeding it.
        return generator.manual_seed(random_key(self._update_key, ordinal, row))


def _block_ranges(start: int, stop: int, row_size: int) -> Iterator[tuple[int, int]]:
    """Yield the blocks of rows that hold the rows `start` to `stop`.

    The first holds about a thousand numbers, each following one as many rows as all before it, up to the largest.
    """
    first = max(1, FIRST_BLOCK // max(row_size, 1))
    largest = first * (LARGEST_BLOCK // FIRST_BLOCK)
    while start < stop:
        if start < first:
            begin, length = 0, first
        elif start < largest:
            begin = length = first << ((start // first).bit_length() - 1)
        else:
            begin, length = start - start % largest, largest
        yield begin, begin + length
        start = begin + length


def _wrong_row_count_message(kind: DrawSpec, num_rows: int, expected: int | None) -> str:
    return (
        f"{num_rows} rows of random numbers were asked for (shape {(num_rows, *kind.row)}) in a part of the batch that holds "
        f"{expected} examples. The batch is split, and each row must belong to one example, or the update would depend on the "
        "split. Ask for len(batch) rows; several numbers an example are (len(batch), several, ...), one number for the whole "
        "batch is ts.rand(())."
    )
