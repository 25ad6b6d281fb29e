# SPDX-License-Identifier: Apache-2.0
"""The files that a run's data maps or holds open, looked at now and then: one that has grown or shrunk is said."""

import time
from collections.abc import Callable
from pathlib import Path

from truestep.core.errors import DataError
from truestep.engine.data.held_files import HeldFile, looked_at_again
from truestep.run.cursor import RunCursor

SECONDS, COST = 10.0, 0.001  # between two looks at most, and the share of the time that they may take

_KEEP = (
    "A file that is trained on must not change: write new data to another one, and start a new run with both"
)


class RunDataFiles:
    """Says, once each, how the files have changed since they were opened."""

    def __init__(self, cursor: RunCursor, say: Callable[[str], None]) -> None:
        self._cursor, self._say = cursor, say
        self._said: set[str] = set()
        self._due_at = 0.0

    def look(self, *, at_once: bool = False) -> None:
        """Look at all files, now and then; raises a DataError where a mapped one has lost what may be read."""
        if not at_once and time.monotonic() < self._due_at:
            return
        begin = time.monotonic()
        files = [(each.label, held) for each in self._cursor.streams.values() for held in each.source.files()]
        found = _changes(files)
        end = time.monotonic()
        # as long until the next look as keeps its cost a thousandth: files on a network answer slowly
        self._due_at = end + (min(SECONDS, (end - begin) / COST) if files else SECONDS)
        for text in found:
            # said before the read that would end the process: no exception can be raised from a SIGBUS
            if text.endswith(_SIGNAL):
                raise DataError(f"{text}.")
            if text not in self._said:
                self._said.add(text)
                self._say(text)


_SIGNAL = "ends the process by SIGBUS, without a word"


def _changes(files: list[tuple[str, HeldFile]]) -> list[str]:
    return [
        f"{label!r}: {changed}"
        for label, held in files
        if (changed := _changed_since(held, looked_at_again(held)))
    ]


def _changed_since(held: HeldFile, now: HeldFile | None) -> str | None:
    # by its number on the disk: a file that was put in the place of another one has the same name
    name = Path(held.path).name
    if now is None or now.number != held.number:
        what = "is gone" if now is None else "is another file"
        return (
            f"its file {name} {what} since it was opened: this process reads the old one, and a run that is started again can't. "
            f"{_KEEP}"
        )
    if now.size == held.size:
        return None
    told = f"its file {name} had {held.size:,} bytes when it was opened and has {now.size:,} now"
    if now.size > held.size:
        return f"{told}: the samples stay those that were known then. {_KEEP}"
    if held.is_mapped:
        return (
            f"{told}. Put back what is missing: it is mapped into memory, and to read what is gone {_SIGNAL}"
        )
    return f"{told}: samples that lay behind are gone. {_KEEP}"
