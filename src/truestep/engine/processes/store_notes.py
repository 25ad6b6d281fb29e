# SPDX-License-Identifier: Apache-2.0
"""What the processes of a run leave for each other in their store: who they are, what they wait for, what went wrong.

The store is that of the rendezvous. It is written at the start, when somebody waits for longer than usual, and when something has
failed; a run in which nothing fails never reads it. What is asked of it again and again is as many requests at any number of ranks:
every key that each rank has is there from the start, so that those of all are read in one.
"""

import json
import os
import socket
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

Store = Any
"""A `torch.distributed.Store`."""

PATIENCE_SECONDS = 4.0
"""How long the survivors of a broken connection ask each other who it was."""


class RankProcess(NamedTuple):
    """A process of the run: its host, number there, and when it began (numbers are given out again)."""

    host: str
    pid: int
    began: float

    @classmethod
    def of_this_process(cls) -> "RankProcess":
        """Return this process."""
        import psutil

        return cls(socket.gethostname(), os.getpid(), psutil.Process().create_time())

    @property
    def trouble(self) -> str | None:
        """What keeps it from answering, as far as can be seen from here: None where it runs, or on another machine."""
        if self.host != socket.gethostname():
            return None
        import psutil

        try:
            process = psutil.Process(self.pid)
            status = process.status()
            # A second of grace: psutil reckons from the time of boot, which Linux gives in whole seconds, and anew by its clock.
            if abs(process.create_time() - self.began) > 1 or status == psutil.STATUS_ZOMBIE:
                return "is gone"
            return "is stopped (SIGSTOP)" if status == psutil.STATUS_STOPPED else None
        except psutil.NoSuchProcess:
            return "is gone"
        except psutil.Error:
            return None


class RankSignOfLife(NamedTuple):
    """What a rank has last written of itself: where it waits, for how long, and what it does that may take its time."""

    meeting: int = -1
    place: str | None = None
    seconds: float = 0.0
    busy: str | None = None
    renewed: int = 0
    """How often the word that it is busy was renewed: as long as it lives, every second."""
    where: str = ""
    """The line of the user's code that waits, and the step."""


class RankNotes:
    """The notes of all ranks in one store."""

    def __init__(self, store: Store, rank: int, size: int) -> None:
        self._store, self._rank, self._size = store, rank, size
        life = RankSignOfLife()
        first = {
            f"waiting/{rank}": [life.meeting, life.place, life.seconds, life.where],
            f"busy/{rank}": [life.busy, life.renewed],
            f"survivor/{rank}": False,
            f"pickles/{rank}": [-1, None],
            f"process/{rank}": RankProcess.of_this_process(),  # the last: who has read it finds the others
        }
        self._write_notes(first)
        self.processes = [RankProcess(*each) for each in self._read_notes_of_all("process")]

    def _write_note(self, key: str, value: Any) -> None:
        # As JSON: whoever can reach the store can write to it, and a pickle would run what they wrote.
        self._store.set(key, json.dumps(value))

    def _write_notes(self, values: dict[str, Any]) -> None:
        """Write several, in one request where the store can."""
        if self._store.has_extended_api():
            self._store.multi_set([*values], [json.dumps(each) for each in values.values()])
            return
        for key, value in values.items():
            self._write_note(key, value)

    def _read_note(self, key: str) -> Any:
        return json.loads(self._store.get(key))

    def _read_notes_of_all(self, *names: str) -> list[Any]:
        """Return what every rank has written under this name, waiting for it; in two requests where the store can."""
        keys = self._note_keys_of_all(*names)
        if not self._store.has_extended_api():
            return [self._read_note(key) for key in keys]
        self._store.wait(keys)
        return [json.loads(each) for each in self._store.multi_get(keys)]

    def _note_keys_of_all(self, *names: str) -> list[str]:
        return [f"{name}/{rank}" for name in names for rank in range(self._size)]

    def _has_note(self, key: str) -> bool:
        return bool(self._store.check([key]))

    def record_failure(self, rank: int | None, what: str) -> None:
        """Write down that `rank` (None: all together) has failed; the first note is the one that everybody reads."""
        number = self._store.add("failures", 1)
        self._write_note(f"failure/{number}", [rank, what])

    def failure(self) -> tuple[int | None, str] | None:
        """Return the first failure that was written down."""
        if not self._has_note("failure/1"):
            return None
        rank, what = self._read_note("failure/1")
        return rank, what

    def waits(self, meeting: int, place: str, seconds: float, where: str = "") -> None:
        """Write down that this rank waits in its meeting of this number, for how long it has, and in which line."""
        self._write_note(f"waiting/{self._rank}", [meeting, place, seconds, where])

    def waiting(self, rank: int) -> RankSignOfLife:
        """Return what a rank has last written of its waiting."""
        meeting, place, seconds, where = self._read_note(f"waiting/{rank}")
        return RankSignOfLife(meeting, place, seconds, where=where)

    def signs(self) -> list[RankSignOfLife]:
        """Return what each rank has last written of itself; of one that lives, another thing a little later."""
        found = self._read_notes_of_all("waiting", "busy")
        pairs = zip(found[: self._size], found[self._size :], strict=True)
        return [
            RankSignOfLife(meeting, place, seconds, busy, renewed, where)
            for (meeting, place, seconds, where), (busy, renewed) in pairs
        ]

    def places(self, mine: str) -> list[str]:
        """Exchange where the ranks are, once they are known to be at different places."""
        self._write_note(f"place/{self._rank}", mine)
        return self._read_notes_of_all("place")

    def busy(self, what: str | None, renewed: int = 0) -> None:
        """Write down that this rank does something that may take its time, or (None) that it is done."""
        self._write_note(f"busy/{self._rank}", [what, renewed])

    def note_pickling(
        self, meeting: int, file: str | None
    ) -> tuple[list[tuple[str | None] | None], list[RankSignOfLife]]:
        """Write down that this rank pickles its parts of divided weights behind so many meetings, and into which file.

        Return which file each rank does so into at the same place, None for one that does not, and the signs of life.
        """
        self._write_note(f"pickles/{self._rank}", [meeting, file])
        signs = self.signs()  # before: whoever has gone on by then has pickled or never will
        found = self._read_notes_of_all("pickles")
        return [(name,) if at == meeting else None for at, name in found], signs

    def note_part_written(self, checkpoint: str, problem: str | None) -> None:
        """Write down that this rank has written its part of a checkpoint, or why it could not."""
        if problem is None:
            self._write_note(f"part/{checkpoint}/{self._rank}", True)
        else:
            self._write_note(f"problem/{checkpoint}", [self._rank, problem])

    def have_parts_written(self, ranks: Sequence[int], checkpoint: str) -> bool:
        """Return whether all of these ranks have written their parts."""
        return bool(self._store.check([f"part/{checkpoint}/{rank}" for rank in ranks]))

    def find_failed_part(self, checkpoint: str) -> tuple[int, str] | None:
        """Return a rank that could not write its part, and why."""
        if not self._has_note(f"problem/{checkpoint}"):
            return None
        rank, problem = self._read_note(f"problem/{checkpoint}")
        return rank, problem

    def find_culprit(self) -> tuple[int | None, str]:
        """Return who broke a connection, and how; asks for a few seconds."""
        self._write_note(f"survivor/{self._rank}", True)
        until = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < until:
            if (failure := self.failure()) is not None:
                return failure
            if (gone := self.find_gone_rank()) is not None:
                return gone
            for rank, trouble in enumerate(each.trouble for each in self.processes):
                if trouble is not None:
                    return rank, self.describe(rank, trouble)
            time.sleep(0.05)
        silent = [rank for rank, lives in enumerate(self._read_notes_of_all("survivor")) if not lives]
        rank = silent[0] if silent else self._rank
        return rank, self.describe(rank, "does not answer")

    def find_gone_rank(self) -> tuple[int, str] | None:
        """Return a rank whose process is gone, as far as can be seen from here, and what is to be said of it."""
        rank = next((rank for rank, each in enumerate(self.processes) if each.trouble == "is gone"), None)
        if rank is None:
            return None
        return rank, self.describe(rank, "is gone: it was killed, or left without a word")

    def has_other_running_rank(self, *, but: int | None = None) -> bool:
        """Whether the process of another rank, except for that one, still runs, as far as can be seen from here."""
        without = (self._rank, but)
        return any(each.trouble is None for rank, each in enumerate(self.processes) if rank not in without)

    def describe(self, rank: int, what: str) -> str:
        """Return a rank with its process, and what is to be said of it."""
        host, pid, _ = self.processes[rank]
        return f"rank {rank} (process {pid} on {host}) {what}"
