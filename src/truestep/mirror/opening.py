# SPDX-License-Identifier: Apache-2.0
"""Taking a run's place in the store, and bringing its directory to what is newer there."""

import socket
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from truestep.checkpoints.checkpoint_names import TEMPORARY
from truestep.checkpoints.checkpoint_removal import undamaged_checkpoints
from truestep.checkpoints.file_operations import CheckpointFiles
from truestep.checkpoints.lock import RunLock
from truestep.checkpoints.resume_attempts import unfit_checkpoints
from truestep.checkpoints.retention import Retention
from truestep.core.errors import CheckpointError, RunDirectoryError
from truestep.core.text_formatting import literal_text
from truestep.mirror.checkpoint_record import StoredCommit, commit_order
from truestep.mirror.lease import (
    HeldLease,
    ObservedLease,
    acquire_next_lease,
    lease_path,
    newest_lease,
    parse_lease,
    valid_commits,
    wait_until_lease_is_free,
)
from truestep.mirror.local_mirror_state import (
    CHECKPOINTS,
    MirrorLeaseMark,
    read_mirror_mark,
    write_mirror_mark,
)
from truestep.mirror.mirror import RunMirror
from truestep.mirror.pull import RunFetcher, read_sound_commits
from truestep.mirror.push import CheckpointPush
from truestep.mirror.store_check import refuse_unfit_store
from truestep.mirror.store_requests import MirrorObjectStore, translate_store_errors

Say = Callable[[str], None]
GIVE_BACK_SECONDS = 5.0
"""How long a start that failed, or was interrupted, tries to give its place back."""


class MirrorOpenOptions(NamedTuple):
    """What a mirror is opened for."""

    address: str
    directory: Path
    resume: str
    retention: Retention
    lease_seconds: float


def open_mirror(opening: MirrorOpenOptions, say: Say, note: Say | None = None) -> RunMirror:
    """Take the run's place in the store; bring the directory to what is newer there.

    `say` is told what is lost or passed over, `note` (by default it, too) what was fetched. Raises RunDirectoryError where another
    process is at work there, where it holds another run, or is not what `resume` asks for.
    """
    with translate_store_errors(opening.address):
        objects = MirrorObjectStore(opening.address)
        try:
            return _open_mirror_in_store(objects, opening, say, note or say)
        except BaseException:
            objects.close()
            raise


def _open_mirror_in_store(
    objects: MirrorObjectStore, opening: MirrorOpenOptions, say: Say, note: Say
) -> RunMirror:
    refuse_unfit_store(objects)
    checkpoints = opening.directory / CHECKPOINTS
    fetch = RunFetcher(objects, opening.directory, say, note)
    taking = _LeaseAcquisition(objects, opening, fetch, say)
    seen = newest_lease(objects)
    taking.refuse(seen)
    checkpoints.mkdir(parents=True, exist_ok=True)
    lock = RunLock(checkpoints, CheckpointFiles())
    try:
        return taking.taken(seen)
    except BaseException:
        fetch.clear(TEMPORARY)
        raise
    finally:
        lock.release()


class _LeaseAcquisition:
    """Takes the lease, while what is needed is fetched; then fetches what has come since."""

    def __init__(
        self, objects: MirrorObjectStore, opening: MirrorOpenOptions, fetch: RunFetcher, say: Say
    ) -> None:
        self._objects, self._opening, self._fetch, self._say = objects, opening, fetch, say
        self._directory = opening.directory
        mark = read_mirror_mark(self._directory)
        self._has_run = (self._directory / "config.json").exists() and not mark.is_fetching
        self._mark = mark if self._has_run else MirrorLeaseMark(0, "")

    def refuse(self, seen: ObservedLease) -> None:
        """Refuse what `resume` does not ask for, and a directory whose run the store knows nothing of."""
        address, resume = self._objects.address, self._opening.resume
        if not valid_commits(self._objects, seen):
            if resume == "must" and not self._has_run:
                raise RunDirectoryError(
                    f"{self._directory} holds no run to go on with, and neither does the mirror {address}, and resume='must' was "
                    "asked for."
                )
            return
        if self._has_run and self._is_lease_of_this_store(seen):
            return
        if resume in ("never", "anew"):
            raise RunDirectoryError(
                f"The mirror {address} holds a run already, and resume={resume!r} was asked for. Give the new run another "
                f"address, ts.Run(..., mirror={literal_text(f'{address}-2')})."
            )
        if self._has_run:
            raise RunDirectoryError(
                f"{self._directory} holds a run that the mirror {address} knows nothing of, and checkpoints of a run are there "
                "already. To go on with the one in the store, give an empty directory; to go on with this one, give another "
                "address."
            )

    def _is_lease_of_this_store(self, seen: ObservedLease) -> bool:
        """Whether the lease that the directory had last is one of this store's."""
        if not 0 < self._mark.number <= seen.number:
            return False
        lease = parse_lease(self._mark.number, self._objects.get(lease_path(self._mark.number)))
        return lease is None or lease.token == self._mark.token

    def taken(self, seen: ObservedLease) -> RunMirror:
        """Return the mirror at work."""
        seconds = self._opening.lease_seconds
        # of this host alone: a copy of the directory on another one has the token, too, and no lock keeps it from there
        ours = f"{self._mark.token}@{socket.gethostname()}"
        ahead = ThreadPoolExecutor(1, "truestep-ahead")
        try:
            if not self._mark.number:  # what fails is found again, and said, when the lease is held
                ahead.submit(self._prefetch_newest_commit, seen)
            lease = acquire_next_lease(
                self._objects, wait_until_lease_is_free(self._objects, ours, seconds), seconds
            )
        except BaseException:
            self._objects.close()  # or who is refused would wait for the download
            ahead.shutdown()
            raise
        held = HeldLease(self._objects, lease)
        try:
            ahead.shutdown()
            return self._start_mirror(held)
        except BaseException:
            self._objects.set_deadline(time.monotonic() + GIVE_BACK_SECONDS)
            held.release_lease()
            self._objects.close()
            ahead.shutdown()
            raise

    def _prefetch_newest_commit(self, seen: ObservedLease) -> None:
        commits = read_sound_commits(self._objects, valid_commits(self._objects, seen), lambda _: None)
        self._fetch.ahead([*commits.values()], seen.marks)

    def _start_mirror(self, held: HeldLease) -> RunMirror:
        lease = held.lease
        commits = read_sound_commits(self._objects, lease.commits, self._say)
        goes_on_from = self._bring_directory_up_to_date(lease.marks, [*commits.values()])
        if lease.commits and goes_on_from is None:
            raise CheckpointError(
                f"The mirror {self._objects.address} has {len(lease.commits)} checkpoints, and none of them can be used. Nothing "
                "was deleted. To begin anew, give another address."
            )
        write_mirror_mark(self._directory, MirrorLeaseMark(lease.number, lease.token))
        push = CheckpointPush(self._objects, held, self._directory, self._opening.retention)
        sound = {key: commit for key, commit in commits.items() if key not in self._fetch.damaged}
        is_newest = goes_on_from is not None and goes_on_from.key == lease.commits[-1]
        push.begin(sound, goes_on_from if is_newest else None)
        return RunMirror(self._objects, held, push, self._directory)

    def _bring_directory_up_to_date(
        self, marks: Sequence[str], commits: list[StoredCommit]
    ) -> StoredCommit | None:
        """Bring the directory to the store's newest commit unless its own are as new; return the newest sound commit."""
        number = self._mark.number
        went_on = any(commit_order(each.key)[0] > number for each in commits)
        if number and not went_on and _is_directory_as_new_as_commits(self._directory, commits):
            return commits[-1] if commits else None
        wanted = self._fetch.ahead(commits, marks)
        if not wanted:
            return None
        if number and went_on:
            self._say(
                f"the run went on elsewhere: what {self._directory} held is of the past, and {wanted[0].name} of the store "
                "takes its place"
            )
        self._fetch.settle(wanted, marks)
        return wanted[0]


def _is_directory_as_new_as_commits(directory: Path, commits: list[StoredCommit]) -> bool:
    """Whether the directory has a checkpoint that is as new as the store's newest."""
    files, folder = CheckpointFiles(), directory / CHECKPOINTS
    unfit = unfit_checkpoints(files, folder)
    there = [each for each in undamaged_checkpoints(files, folder) if each.name not in unfit]
    newest = max((each.summary.sequence for each in there), default=0)
    return not commits or newest >= commits[-1].summary.sequence
