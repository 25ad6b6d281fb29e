# SPDX-License-Identifier: Apache-2.0
"""How many files were read so far, told to who waits: counted in every process that reads."""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

PATIENCE_SECONDS = 3.0
Waiting = Callable[[int, int], None]

_current: "ReadTally | None" = None  # what is read now: processes that are forked for it find it here


class ReadTally:
    """A byte for each file, in memory that forked processes share: each is set once, so that no lock is needed."""

    def __init__(self, files: Sequence[Path], waiting: Waiting | None) -> None:
        import mmap  # what runs in a browser has none, and reads texts only

        global _current
        self._places = {path: index for index, path in enumerate(files)}
        self._read = mmap.mmap(-1, max(1, len(files)))
        self._waiting = waiting
        self._told = time.perf_counter()
        self._has_told = False
        self._process = os.getpid()
        _current = self

    def tell(self) -> None:
        """Say how far it is, if it was not said lately; only where the reading was begun."""
        due = time.perf_counter() - self._told > PATIENCE_SECONDS
        if due and self._waiting is not None and os.getpid() == self._process:
            self._told = time.perf_counter()
            if (count := self._read[:].count(1)) < len(self._places):
                self._has_told = True
                self._waiting(count, len(self._places))

    def end(self) -> None:
        """All are read: say so to who was told how far it is."""
        if self._has_told and self._waiting is not None:
            self._waiting(len(self._places), len(self._places))

    def add(self, paths: Sequence[Path]) -> None:
        """Note files that are done."""
        for path in paths:
            self._read[self._places[path]] = 1
        self.tell()


def count_source_read(path: Path) -> None:
    """Note a file that is done, from whichever process."""
    if _current is not None:
        _current.add([path])
