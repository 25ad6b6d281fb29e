# SPDX-License-Identifier: Apache-2.0
"""The checksum of a file, computed beside reading or writing it, on all processors. Imports no torch.

It is the digest of a file of up to 8 MiB. Of a larger one it is the digest of the digests of its pieces of 8 MiB,
one after another, so that pieces can be hashed at the same time. Format 1 had the digest of every file as a whole.
"""

import sys
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self

from truestep.checkpoints.digests import NEWEST_DIGEST, Digest, FileHashScheme, new_digest
from truestep.checkpoints.memory_allocation import prefault_pages
from truestep.core.control_groups import num_usable_cpus

PIECE_BYTES = 8 << 20
CACHED_BYTES = 1 << 20  # read and hashed in one go, so that they are still in the processor's cache
MOST_THREADS = 4  # one hashes 4.5 GB/s on an Intel Xeon, so that four keep up with any disk


def _num_hash_threads() -> int:
    """Return how many threads hash beside the one that reads or writes, which has a processor, too."""
    return max(0, min(MOST_THREADS, num_usable_cpus() - 1))


class Checksum:
    """Takes a file's bytes in their order. What it was given must stay as it is until `lag` bytes later.

    `read` fills memory from a place of the file on and returns how many bytes there were; the thread that hashes memory calls it.
    """

    def __init__(
        self, *, kind: FileHashScheme = NEWEST_DIGEST, read: Callable[[memoryview, int], int] | None = None
    ) -> None:
        self._kind = kind.name
        self._piece_bytes = PIECE_BYTES if kind.in_pieces else sys.maxsize
        self._read = read
        self._at = 0
        self._whole = new_digest(self._kind)
        self._waiting: list[_MemoryPiece] = []
        self._waiting_bytes = 0
        self._digests: list[Future[bytes] | bytes] = []
        self._open: deque[tuple[int, Future[bytes], list[_MemoryPiece]]] = deque()
        """What threads were given and may not have hashed, by the piece's number."""
        self._threads: ThreadPoolExecutor | None = None
        self._num_threads = _num_hash_threads()
        # Threads take unlike times for a piece; one that is far behind keeps memory, for which whoever writes waits.
        self._most_open = self._num_threads + 1 if read is None else 2 * self._num_threads + 4

    @property
    def lag(self) -> int:
        """For how many bytes memory is still read after it was given."""
        return (self._most_open + 1) * PIECE_BYTES if self._piece_bytes == PIECE_BYTES else 0

    def update(self, data: memoryview) -> None:
        """Take the next bytes."""
        self._add_bytes(data, None)

    def fill(self, memory: memoryview) -> None:
        """Fill memory with the next bytes, at the latest when `settle` or `hexdigest` returns, and take them."""
        self._add_bytes(memory, self._read)

    def _add_bytes(self, data: memoryview, read: Callable[[memoryview, int], int] | None) -> None:
        while data:
            if self._waiting_bytes == self._piece_bytes:  # and more follows: the last piece is hashed here
                self._submit_waiting_piece()
            part = data[: self._piece_bytes - self._waiting_bytes]
            self._waiting.append(_MemoryPiece(part, self._at, read))
            self._waiting_bytes += len(part)
            self._at += len(part)
            data = data[len(part) :]
        if self._piece_bytes != PIECE_BYTES:
            self._hash_waiting_parts()

    def settle(self) -> None:
        """Return when all memory that was to be filled is."""
        self._finish_hashing()
        for part in self._waiting:
            part.fill()

    def _submit_waiting_piece(self) -> None:
        piece, self._waiting, self._waiting_bytes = self._waiting, [], 0
        while self._open and self._open[0][1].done():
            self._open.popleft()
        number = len(self._digests)
        # To count those that are open is not enough: a thread that lost its processor may hold an old piece while the others hash
        # all that follow, and `lag` is promised.
        leaving = self._open[0][1] if self._open and number - self._open[0][0] >= self._most_open else None
        digest = (
            self._submit_to_thread_pool(piece)
            if leaving is None and self._num_unfinished_pieces() < 2 * self._num_threads
            else None
        )
        if digest is None:  # the threads have enough to do
            self._digests.append(self._hash_piece(piece))
        else:
            self._digests.append(digest)
            self._open.append((number, digest, piece))
        if leaving is not None:
            leaving.result()

    def _num_unfinished_pieces(self) -> int:
        return sum(not digest.done() for _, digest, _ in self._open)

    def _finish_hashing(self) -> None:
        """Hash what no thread has begun, the last first, and wait for the rest."""
        while self._open:
            number, digest, piece = self._open.pop()
            if digest.cancel():
                self._digests[number] = self._hash_piece(piece)
            else:
                digest.result()

    def _submit_to_thread_pool(self, piece: list["_MemoryPiece"]) -> Future[bytes] | None:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._num_threads, "truestep-checksum")
        try:
            return self._threads.submit(self._hash_piece, piece)
        except RuntimeError:  # the interpreter is ending and starts no more threads; this one hashes
            return None

    def hexdigest(self) -> str:
        """Return the checksum of everything that was given."""
        self._hash_waiting_parts()
        self._finish_hashing()
        if not self._digests:
            return self._whole.hexdigest()
        digests = [each.result() if isinstance(each, Future) else each for each in self._digests]
        return new_digest(self._kind, b"".join([*digests, self._whole.digest()])).hexdigest()

    def _hash_piece(self, piece: list["_MemoryPiece"]) -> bytes:
        found = new_digest(self._kind)
        for part in piece:
            part.fill_and_hash_into(found)
        return found.digest()

    def _hash_waiting_parts(self) -> None:
        for part in self._waiting:
            part.fill_and_hash_into(self._whole)
        self._waiting, self._waiting_bytes = [], 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)


class _MemoryPiece:
    """Memory in a piece, what fills it, and from where in the file on."""

    __slots__ = ("_at", "_memory", "_read")

    def __init__(self, memory: memoryview, at: int, read: Callable[[memoryview, int], int] | None) -> None:
        self._memory, self._at, self._read = memory, at, read

    def fill(self) -> None:
        if self._read is not None:
            self._memory = self._memory[: self._read(self._memory, self._at)]
            self._read = None

    def fill_and_hash_into(self, digest: Digest) -> None:
        """Fill it and hash it."""
        read = self._read
        for start in range(0, len(self._memory), CACHED_BYTES):
            some = self._memory[start : start + CACHED_BYTES]
            if read is not None:
                prefault_pages(some)
                some = some[: read(some, self._at + start)]
            digest.update(some)
