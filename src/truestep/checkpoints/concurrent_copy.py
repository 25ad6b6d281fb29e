# SPDX-License-Identifier: Apache-2.0
"""A copy of tensors that is still being made while it is written.

To fill memory for the first time costs more than to write it. So a first copy is shared: the writer goes through its
pieces from the front and reads the tensors themselves, while their owner copies from the back. The owner is let go
where they meet, on a slow disk with all of it copied.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Self

import numpy as np
import torch
from torch import Tensor

from truestep.checkpoints.checksum import PIECE_BYTES, Checksum
from truestep.checkpoints.memory_allocation import release_pages
from truestep.checkpoints.tensor_memory_view import tensor_memoryview
from truestep.core.tensor_bytes import bytes_of_contiguous

ALONE_BYTES = 1 << 20  # a tensor of so much is a piece by itself, which the writer reads where it lies


class CopyAbandonedError(Exception):
    """The owner of the tensors was interrupted before they were copied, so that they can't be written."""


class CopyPiece:
    """Tensors and their places in a buffer, which lie in a row there."""

    def __init__(self, memory: Tensor, places: list[Tensor], sources: list[Tensor]) -> None:
        self._memory, self._places, self._sources = memory, places, sources

    def parts(self) -> Iterator[Self]:
        """Divide it: parts of large tensors, and small ones together."""
        begin = end = first = 0
        for number, source in enumerate(self._sources):
            if source.nbytes >= ALONE_BYTES and first < number:
                yield self._slice_of_piece(first, number, begin, end)
                begin, first = end, number
            end += source.nbytes
            if source.nbytes >= ALONE_BYTES or end - begin >= PIECE_BYTES:
                yield from self._slice_of_piece(first, number + 1, begin, end)._slices_of_piece()
                begin, first = end, number + 1
        if first < len(self._sources):
            yield self._slice_of_piece(first, len(self._sources), begin, end)

    def _slice_of_piece(self, first: int, last: int, begin: int, end: int) -> Self:
        return type(self)(self._memory[begin:end], self._places[first:last], self._sources[first:last])

    def _slices_of_piece(self) -> Iterator[Self]:
        if not self._is_one_contiguous_tensor:
            yield self
            return
        flat = bytes_of_contiguous(self._sources[0].detach())
        for begin in range(0, len(flat), PIECE_BYTES):
            memory = self._memory[begin : begin + PIECE_BYTES]
            yield type(self)(memory, [memory], [flat[begin : begin + PIECE_BYTES]])

    @property
    def _is_one_contiguous_tensor(self) -> bool:
        return len(self._sources) == 1 and self._sources[0].is_contiguous()

    @property
    def num_bytes(self) -> int:
        """How many bytes it has."""
        return len(self._memory)

    def copy(self) -> None:
        """Fill its part of the buffer."""
        if self._is_one_contiguous_tensor:
            # NumPy copies in this thread alone: all processors are at work already
            np.copyto(
                np.frombuffer(tensor_memoryview(self._memory), np.uint8),
                np.frombuffer(self._source_memory(), np.uint8),
            )
        else:
            with torch.no_grad():
                torch._foreach_copy_(self._places, self._sources)

    def _source_memory(self) -> memoryview:
        return tensor_memoryview(self._sources[0].detach())

    def release_tensors(self) -> None:
        """Keep no tensor alive: it is copied, or written."""
        self._places, self._sources = [], []

    def copied(self) -> memoryview:
        """Return its part of the buffer."""
        return tensor_memoryview(self._memory)

    def direct(self) -> memoryview:
        """Return the memory of its tensor, not copied; of several, or one that does not lie in a row, a copy."""
        if self._is_one_contiguous_tensor:
            return self._source_memory()
        self.copy()
        return self.copied()


class UncopiedPiece(CopyPiece):
    """A tensor for which there is no buffer: it is read where it lies while its owner waits."""

    def __init__(self, source: Tensor) -> None:
        super().__init__(torch.empty(0, dtype=torch.uint8), [], [source])

    def direct(self) -> memoryview:
        """Return the memory of its tensor; of one elsewhere, or that does not lie in a row, a copy."""
        return tensor_memoryview(self._sources[0].detach().cpu().contiguous())


class WriteOnceMemory:
    """Memory of a buffer that is written once: given back to the system as soon as nobody hashes it any more."""

    def __init__(self) -> None:
        self._pieces: deque[memoryview] = deque()
        self._num_bytes, self._lag = 0, Checksum().lag

    def add(self, piece: memoryview) -> None:
        """Note a piece that was written behind those before."""
        self._pieces.append(piece)
        self._num_bytes += len(piece)
        while self._num_bytes - len(self._pieces[0]) >= self._lag:
            self._num_bytes -= len(self._pieces[0])
            release_pages(self._pieces.popleft())


def read_and_release_pages(memory: memoryview) -> Iterator[memoryview]:
    """Yield memory in pieces, each of which is given back when it was written."""
    written = WriteOnceMemory()
    for begin in range(0, len(memory), PIECE_BYTES):
        piece = memory[begin : begin + PIECE_BYTES]
        yield piece
        written.add(piece)


class SharedCopy:
    """The pieces of a copy, taken by a writer from the front and by the owner of the tensors from the back.

    Memory of a buffer that `is_kept` stays for the next save; else it is given back as soon as it is written. Where the writer
    `is_alone`, the owner copies nothing and waits for it.
    """

    def __init__(self) -> None:
        self.is_kept, self.is_alone = True, False
        self._pieces: list[CopyPiece] = []
        self._changed = threading.Condition()
        self._num_read = 0  # by the writer, from the front, as the tensors lie
        self._num_released = 0  # of these, which it has done with
        self._taken = 0  # all from here on are the owner's
        self._copied = 0  # and all from here on are copied
        self._over = self._abandoned = False

    def add(self, pieces: list[CopyPiece]) -> range:
        """Add pieces, before anybody begins; return their numbers."""
        numbers = range(len(self._pieces), len(self._pieces) + len(pieces))
        self._pieces += pieces
        self._taken = self._copied = len(self._pieces)
        return numbers

    def read(self, numbers: range) -> Iterator[memoryview]:
        """Yield the memory of pieces, for the writer, which takes all of them in their order."""
        beyond, written = 0, WriteOnceMemory()
        for number in numbers:
            piece = self._pieces[number]
            if self._claim_piece_for_writer(number):
                yield piece.direct()
                continue
            yield piece.copied()
            beyond += piece.num_bytes
            if beyond >= Checksum().lag:
                self.release(number)
            if not self.is_kept:
                written.add(piece.copied())

    def _claim_piece_for_writer(self, number: int) -> bool:
        """Return whether the writer is to read the tensors of a piece; else it is copied when this returns."""
        with self._changed:
            is_direct = number < self._taken
            if is_direct:
                self._num_read = number + 1
            else:
                self._changed.wait_for(lambda: self._abandoned or self._copied <= number)
            if self._abandoned:
                raise CopyAbandonedError
            return is_direct

    def release(self, number: int) -> None:
        """Say that the tensors of the pieces before this one are not read any more."""
        with self._changed:
            if self._abandoned and self._num_released < self._num_read:
                raise CopyAbandonedError  # perhaps they were changed while they were read
            self._num_released = min(number, self._num_read)
            self._changed.notify_all()

    def share(self, start: Callable[[Callable[[], None]], None], job: Callable[[], None]) -> None:
        """Start the writer's job, and copy what it has not come to; when this returns, the tensors may be changed."""
        try:
            start(lambda: self._run_writer_job(job))
            while (piece := self._take_last_piece()) is not None:
                piece.copy()
            with self._changed:
                self._changed.wait_for(self._is_done_with_tensors)
        except BaseException:
            with self._changed:
                self._abandoned = True
                self._changed.notify_all()
            raise
        for piece in self._pieces:
            piece.release_tensors()

    def _is_done_with_tensors(self) -> bool:
        is_ahead = self.is_alone and self._num_read < len(self._pieces)
        return self._over or (self._num_released == self._num_read and not is_ahead)

    def _run_writer_job(self, job: Callable[[], None]) -> None:
        try:
            job()
        except CopyAbandonedError:
            pass  # the owner knows
        finally:
            # However it ended, nothing is read any more.
            with self._changed:
                self._over = True
                self._changed.notify_all()

    def _take_last_piece(self) -> CopyPiece | None:
        with self._changed:
            self._copied = self._taken
            self._changed.notify_all()
            if self._over or self.is_alone or self._taken == self._num_read:
                return None
            self._taken -= 1
            return self._pieces[self._taken]
