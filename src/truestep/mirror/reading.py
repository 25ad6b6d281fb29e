# SPDX-License-Identifier: Apache-2.0
"""What a mirror holds, read without a run's directory: nothing is taken, changed or kept, and a run may be at work there."""

import os
import re
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar
from urllib.parse import quote, unquote

from truestep.checkpoints.checkpoint_names import sequence_of_checkpoint_name
from truestep.checkpoints.checksum import PIECE_BYTES
from truestep.checkpoints.file_operations import CheckpointFiles
from truestep.checkpoints.manifest import MANIFEST_NAME
from truestep.core.errors import CheckpointError, RunDirectoryError, TruestepError
from truestep.core.user_frames import warn_user
from truestep.mirror.address import mirror_address_or_none
from truestep.mirror.checkpoint_record import PIECES, StoredCommit, StoredFile, StoredFilePiece
from truestep.mirror.lease import LEASES, lease_path, newest_lease, valid_commits
from truestep.mirror.local_mirror_state import CHECKPOINTS
from truestep.mirror.pull import NUM_THREADS, download_piece, fetch_files, read_sound_commits
from truestep.mirror.store_requests import MirrorObjectStore, translate_store_errors

T = TypeVar("T")
_OF_A_RUN = ("lease", "commits", "pieces", "probe")
MAX_DEPTH = 4  # a run lies no deeper below an address


class StoredFiles(CheckpointFiles):
    """Reads files of checkpoints from the store, a piece when it is asked for; each is checked."""

    def __init__(self, objects: MirrorObjectStore, threads: ThreadPoolExecutor) -> None:
        self._objects, self._threads = objects, threads
        self._stored: dict[int, StoredFile] = {}  # by what the system knows the file by
        self._coming: dict[StoredFilePiece, Future[bytes]] = {}

    def show(self, path: Path, file: StoredFile) -> None:
        """Put a file of that size, and no content, where it is looked for."""
        path.touch()
        os.truncate(path, file.bytes)
        self._stored[path.stat().st_ino] = file

    def read(self, descriptor: int, buffer: memoryview, at: int) -> int:
        """Read some bytes, of a file in the store to the end of a piece."""
        file = self._stored.get(os.fstat(descriptor).st_ino)
        if file is None or at >= file.bytes:
            return super().read(descriptor, buffer, at)
        number, begin = divmod(at, PIECE_BYTES)
        data = self._get_piece_and_prefetch(file, number)[begin : begin + len(buffer)]
        buffer[: len(data)] = data
        return len(data)

    def _get_piece_and_prefetch(self, file: StoredFile, number: int) -> bytes:
        """Return a piece, and have those behind it fetched meanwhile."""
        known, near = self._coming, file.pieces[number : number + NUM_THREADS]
        self._coming = {
            each: known.get(each) or self._threads.submit(download_piece, self._objects, each)
            for each in near
        }
        return self._coming[near[0]].result()


class StoredRunView:
    """A run as the store holds it. `directory` looks like that of the run, and `files` reads what lies below its checkpoints."""

    def __init__(self, objects: MirrorObjectStore, directory: Path, files: StoredFiles) -> None:
        self._objects, self.files, self.address = objects, files, objects.address
        self.directory = directory
        self.seen = newest_lease(objects)
        if not self.seen.number:
            raise RunDirectoryError(
                f"{self.address} holds no run: give the address that ts.Run(..., mirror=...) was given. `truestep runs "
                f"{self.address}` lists the runs below it."
            )
        self._keys = valid_commits(objects, self.seen)
        self.commits = _commits_of_latest_history(read_sound_commits(objects, self._keys, warn_user))
        checkpoints = self.directory / CHECKPOINTS
        checkpoints.mkdir(parents=True)
        for commit in self.commits:
            place = checkpoints / commit.name
            place.mkdir()
            (place / MANIFEST_NAME).write_bytes(commit.manifest_bytes)
            for name, file in commit.files.items():
                files.show(place / name, file)
        for mark in self.seen.marks:
            (checkpoints / mark).touch()

    @property
    def num_bytes(self) -> int:
        """How many bytes its pieces have."""
        return sum(self._objects.names(PIECES).values())

    def changed(self) -> datetime:
        """Return when its holder last showed that it is alive, by the store's clock."""
        return self._objects.changed(lease_path(self.seen.number))

    def has_changed(self) -> bool:
        """Whether the store has other commits by now."""
        return valid_commits(self._objects, newest_lease(self._objects)) != self._keys

    def fetch_metrics_and_media(self) -> None:
        """Fetch what lies beside the newest checkpoint: configuration, environment, metrics and media."""
        for commit in self.commits[:1]:
            fetch_files(self._objects, {self.directory / name: file for name, file in commit.beside.items()})


def _commits_of_latest_history(found: dict[str, StoredCommit]) -> list[StoredCommit]:
    """Return commits newest first, without those that a later lease went back behind: they are of the past."""
    kept: list[StoredCommit] = []
    for commit in reversed(found.values()):
        if not kept or (sequence_of_checkpoint_name(commit.name) or 0) < (
            sequence_of_checkpoint_name(kept[-1].name) or 0
        ):
            kept.append(commit)
    return kept


@contextmanager
def open_store_for_reading(address: str) -> Iterator[MirrorObjectStore]:
    """Open a store to read in it; raises a RunDirectoryError where it can't be reached."""
    with translate_store_errors(address):
        objects = MirrorObjectStore(address, is_made=False)
        try:
            yield objects
        finally:
            objects.close()


def run_addresses_below(address: str) -> list[str]:
    """Return the addresses of the runs at an address and below it."""

    def find_runs(place: str, depth: int) -> Iterator[str]:
        below = objects.folders(f"{place}/" if place else "")
        if f"{place}/{LEASES}".strip("/") in below:
            yield f"{address}/{quote(place)}".rstrip("/")
        for each in below if depth else ():
            if each.rpartition("/")[2] not in _OF_A_RUN:
                yield from find_runs(each, depth - 1)

    with open_store_for_reading(address) as objects:
        return list(find_runs("", MAX_DEPTH))


@contextmanager
def open_stored_run(address: str) -> Iterator[StoredRunView]:
    """Show the run at an address as a directory; raises a RunDirectoryError where there is none."""
    with (
        open_store_for_reading(address) as objects,
        TemporaryDirectory(prefix="truestep-", ignore_cleanup_errors=True) as folder,
        ThreadPoolExecutor(NUM_THREADS, "truestep-read") as threads,
    ):
        # named like the address, as a page names runs by the ends of their paths
        places = re.sub(r"[^\w ./-]", "_", unquote(objects.address.partition("://")[2])).strip("/").split("/")
        directory = Path(folder, *places)
        with _show_address_in_messages(objects.address, directory):
            yield StoredRunView(objects, directory, StoredFiles(objects, threads))


@contextmanager
def _show_address_in_messages(address: str, directory: Path) -> Iterator[None]:
    """Name the address wherever a message or a warning names the directory that stands for it."""
    folder = str(directory)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield
        except TruestepError as error:
            if folder not in str(error):
                raise
            raise type(error)(str(error).replace(folder, address)) from error
        finally:
            said = [str(each.message) for each in caught]
    for text in said:
        warn_user(text.replace(folder, address))


def read_local_or_stored_run(source: str | os.PathLike[str], use: Callable[[Path, CheckpointFiles], T]) -> T:
    """Return what `use` makes of a run's directory and of what reads its files; the source may be an address."""
    address = mirror_address_or_none(source)
    if address is None:
        return use(Path(source), CheckpointFiles())
    while True:
        with open_stored_run(address) as run:
            try:
                return use(run.directory, run.files)
            except CheckpointError:
                # removed while it was read, by the run that is at work there: what it has now is asked for
                if not run.has_changed():
                    raise
