# SPDX-License-Identifier: Apache-2.0
"""Whose turn it is to write: one object for each turn, made create-only, whose number is the holder's.

A later number ends an earlier one. A request that a holder was about to make when it was stopped can't be called back, so it must
do no harm: what is sent lies under the sender's number, each lease names the commits that it goes on from, and what an older
number adds later is in no such list. Nothing that an older one would still remove is relied on.
"""

import json
import os
import re
import socket
import threading
import time
import uuid
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

from truestep.checkpoints.checkpoint_names import ATTEMPT
from truestep.checkpoints.manifest import (
    DamagedCheckpointError,
    manifest_line_with_checksum,
    verified_manifest_body,
)
from truestep.core.errors import RunDirectoryError
from truestep.mirror.checkpoint_record import COMMITS, commit_order
from truestep.mirror.store_requests import MirrorObjectStore, StoreError

LEASES = "lease/"
_NAME = re.compile(r"lease/(\d{6,})")
# a file's name: nothing may reach outside of a directory
_MARK = re.compile(rf"{re.escape(ATTEMPT)}[\w.-]+", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class MirrorLease:
    """A holder's turn. `commits` are those that it goes on from, `marks` the names of the marks beside the checkpoints."""

    number: int
    token: str
    host: str
    process: int
    seconds: float
    commits: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    released: bool = False
    beat: int = 0

    @property
    def path(self) -> str:
        """Where it lies."""
        return lease_path(self.number)

    @property
    def holder(self) -> str:
        """Who holds it, for people."""
        return f"process {self.process} on {self.host}"

    def to_bytes(self) -> bytes:
        """Return it as it lies in the store."""
        return manifest_line_with_checksum(
            json.dumps({"format": 1, **asdict(self)}, separators=(",", ":")).encode()
        )


def lease_path(number: int) -> str:
    """Return where the lease of a number lies."""
    return f"{LEASES}{number:06d}"


def parse_lease(number: int, data: bytes) -> MirrorLease | None:
    """Read a lease; None for a damaged one."""
    try:
        body = json.loads(verified_manifest_body(data))
        if body.pop("format") != 1 or body["number"] != number:
            return None
        body |= {name: tuple(map(str, body[name])) for name in ("commits", "marks")}
        lease = MirrorLease(**body)
        return lease if all(map(_MARK.fullmatch, lease.marks)) else None
    except (DamagedCheckpointError, KeyError, TypeError, ValueError, AttributeError, RecursionError):
        return None


class ObservedLease(NamedTuple):
    """The newest lease as it was seen: number 0 where there never was one."""

    number: int
    raw: bytes
    lease: MirrorLease | None
    """None for a damaged one."""
    sound: MirrorLease | None
    """The same, or where it is damaged the one before, which has a list of commits and marks as well."""

    @property
    def marks(self) -> tuple[str, ...]:
        """The marks beside the checkpoints."""
        return self.sound.marks if self.sound else ()

    def counts(self, key: str) -> bool:
        """Whether a commit is one of the newest holder's own, or one that it went on from."""
        first, listed = (self.sound.number, self.sound.commits) if self.sound else (1, ())
        return first <= commit_order(key)[0] <= self.number or key in listed


def newest_lease(objects: MirrorObjectStore) -> ObservedLease:
    """Return the newest lease."""
    numbers = [int(match[1]) for path in objects.names(LEASES) if (match := _NAME.fullmatch(path))]
    if not numbers:
        return ObservedLease(0, b"", None, None)
    number = max(numbers)
    raw = objects.get(lease_path(number))
    lease = sound = parse_lease(number, raw)
    with suppress(FileNotFoundError):
        for before in range(number - 1, 0, -1) if lease is None else ():
            if sound := parse_lease(before, objects.get(lease_path(before))):
                break
    return ObservedLease(number, raw, lease, sound)


def valid_commits(objects: MirrorObjectStore, seen: ObservedLease) -> list[str]:
    """Return the commits that count, oldest first."""
    return sorted(filter(seen.counts, objects.names(COMMITS)), key=commit_order) if seen.number else []


def wait_until_lease_is_free(objects: MirrorObjectStore, ours: str, seconds: float) -> ObservedLease:
    """Return the newest lease once its holder has released it or is dead: no change for one lease of one's own clock.

    `ours` is the token of the lease that this directory had, and this host: whoever holds the directory's lock is no other process.
    Raises RunDirectoryError where the holder is alive.
    """
    since, seen = time.monotonic(), newest_lease(objects)
    while seen.number and not (
        seen.lease and (seen.lease.released or f"{seen.lease.token}@{seen.lease.host}" == ours)
    ):
        length = seen.lease.seconds if seen.lease else seconds
        time.sleep(length / 8)
        asked, again = time.monotonic(), newest_lease(objects)
        if again.lease and again.lease.released:
            return again
        if again.raw != seen.raw:
            who = f"by {again.lease.holder}" if again.lease else "by another process"
            raise RunDirectoryError(
                f"The mirror {objects.address} is in use {who}, which is at work. Two runs that write to one place would go on "
                "from each other's checkpoints: end that process, or give this run another address."
            )
        if asked - since >= length:
            break
    return seen


def acquire_next_lease(objects: MirrorObjectStore, seen: ObservedLease, seconds: float) -> MirrorLease:
    """Make the next lease, which names the commits that it goes on from; raises RunDirectoryError where another is first."""
    lease = MirrorLease(
        number=seen.number + 1,
        token=uuid.uuid4().hex,
        host=socket.gethostname(),
        process=os.getpid(),
        seconds=seconds,
        commits=tuple(valid_commits(objects, seen)),
        marks=seen.marks,
    )
    try:
        objects.create(lease.path, lease.to_bytes())
    except FileExistsError:
        raise RunDirectoryError(
            f"The mirror {objects.address} was taken at this moment by another process. Start again when that one has ended, or "
            "give this run another address."
        ) from None
    return lease


class HeldLease:
    """A lease that this process holds: a thread shows that it is alive, and finds out when another has gone on."""

    def __init__(self, objects: MirrorObjectStore, lease: MirrorLease) -> None:
        self.lease = lease
        self.is_fenced = False
        self.follower = "another process"
        self._objects = objects
        self._changing, self._ending = threading.Lock(), threading.Event()
        self._thread = threading.Thread(
            target=self._renew_lease_periodically, name="truestep-lease", daemon=True
        )
        self._thread.start()

    def _renew_lease_periodically(self) -> None:
        while not self._ending.wait(self.lease.seconds / 4):
            try:
                if not self.still_holds():
                    return
                self.write()
            except StoreError:  # the credentials have run out, say: what is sent fails, too, and that is said
                continue

    def still_holds(self) -> bool:
        """Ask whether no other has gone on; what would destroy anything asks first."""
        if self.is_fenced:
            return False
        path = lease_path(self.lease.number + 1)
        try:
            later = parse_lease(self.lease.number + 1, self._objects.get(path))
        except FileNotFoundError:
            return True
        self.follower = later.holder if later else self.follower
        self.is_fenced = True
        return False

    def write(self, *, marks: tuple[str, ...] | None = None, released: bool = False) -> None:
        """Rewrite the lease: it is alive, or the marks are others, or it is given back."""
        with self._changing:
            if self.lease.released:  # a late beat takes nothing back
                return
            kept = self.lease.marks if marks is None else marks
            lease = replace(self.lease, beat=self.lease.beat + 1, marks=kept, released=released)
            self._objects.put(lease.path, lease.to_bytes())
            self.lease = lease

    def release_lease(self) -> bool:
        """Let whoever comes next take over at once; where that fails, return False: one lease is waited for."""
        self.stop()
        try:
            if not self.is_fenced:
                self.write(released=True)
        except StoreError:
            return False
        return True

    def stop(self) -> None:
        """Show nothing any more."""
        self._ending.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(5.0)
