# SPDX-License-Identifier: Apache-2.0
"""The checksum of a file, computed beside reading or writing it, on all processors. Imports no torch.

It is the SHA-256 of a file of up to 8 MiB. Of a larger one it is the SHA-256 of the checksums of its pieces of 8 MiB,
one after another, so that pieces can be hashed at the same time. Format 1 had the SHA-256 of every file.
"""

import hashlib
import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self

PIECE_BYTES = 8 << 20
MOST_THREADS = 4  # one hashes 1.8 GB/s on an AMD EPYC, so that four keep up with fast disks


def _num_threads() -> int:
    """Return how many threads hash beside the one that reads or writes, which has a processor, too."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(0, min(MOST_THREADS, processors - 1))


class Checksum:
    """Takes a file's bytes in their order. What it was given must stay as it is until `lag` bytes later."""

    def __init__(self, *, in_pieces: bool = True) -> None:
        self._in_pieces = in_pieces
        self._whole = hashlib.sha256()
        self._waiting: list[memoryview] = []
        self._waiting_bytes = 0
        self._digests: deque[Future[bytes] | bytes] = deque()
        self._threads: ThreadPoolExecutor | None = None
        self._num_threads = _num_threads()

    @property
    def lag(self) -> int:
        """For how many bytes memory is still read after it was given."""
        return (self._num_threads + 2) * PIECE_BYTES if self._in_pieces else 0

    def update(self, data: memoryview) -> None:
        """Take the next bytes."""
        if not self._in_pieces:
            self._whole.update(data)
            return
        while data:
            if self._waiting_bytes == PIECE_BYTES:  # and more follows: the last piece is hashed here
                self._hand_over()
            part = data[: PIECE_BYTES - self._waiting_bytes]
            self._waiting.append(part)
            self._waiting_bytes += len(part)
            data = data[len(part) :]

    def _hand_over(self) -> None:
        piece, self._waiting, self._waiting_bytes = self._waiting, [], 0
        # The piece that leaves `lag` must be hashed, which one it is: to count those that still run is not enough, since a thread
        # that lost its processor may hold an old piece while the others hash all that follow.
        leaving = self._digests[-1 - self._num_threads] if len(self._digests) > self._num_threads else b""
        if not self._num_threads or (isinstance(leaving, Future) and not leaving.done()):
            self._digests.append(_digest(piece))  # the threads have enough to do
        else:
            self._digests.append(self._submitted(piece))
        if isinstance(leaving, Future):
            leaving.result()

    def _submitted(self, piece: list[memoryview]) -> Future[bytes] | bytes:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._num_threads, "truestep-checksum")
        try:
            return self._threads.submit(_digest, piece)
        except RuntimeError:  # the interpreter is ending and starts no more threads; this one is waited for
            return _digest(piece)

    def hexdigest(self) -> str:
        """Return the checksum of everything that was given."""
        for part in self._waiting:
            self._whole.update(part)
        self._waiting = []
        if not self._digests:
            return self._whole.hexdigest()
        digests = [each.result() if isinstance(each, Future) else each for each in self._digests]
        return hashlib.sha256(b"".join([*digests, self._whole.digest()])).hexdigest()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)


def _digest(piece: list[memoryview]) -> bytes:
    found = hashlib.sha256()
    for part in piece:
        found.update(part)
    return found.digest()
