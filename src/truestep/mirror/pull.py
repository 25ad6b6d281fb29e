# SPDX-License-Identifier: Apache-2.0
"""Bringing a run from the store into a directory: what it goes on from, each piece checked, and nothing half there."""

import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from truestep.checkpoints.checkpoint_names import ATTEMPT, DELETED, TEMPORARY, sequence_of_checkpoint_name
from truestep.checkpoints.checksum import PIECE_BYTES
from truestep.checkpoints.digests import new_digest
from truestep.checkpoints.file_operations import CheckpointFiles, sync_folder
from truestep.checkpoints.manifest import MANIFEST_NAME, DamagedCheckpointError, NewerCheckpointError
from truestep.checkpoints.resume_attempts import MAX_ATTEMPTS
from truestep.core.atomic_files import replacing_file
from truestep.core.errors import CheckpointError
from truestep.core.os_specific import sync_file
from truestep.core.text_formatting import bytes_text
from truestep.mirror.checkpoint_record import StoredCommit, StoredFile, StoredFilePiece, parse_commit
from truestep.mirror.local_mirror_state import CHECKPOINTS, FETCHING, MirrorLeaseMark, write_mirror_mark
from truestep.mirror.store_requests import MirrorObjectStore

NUM_THREADS = 4
_LAST = "config.json"  # what makes a directory a run's


def read_sound_commits(
    objects: MirrorObjectStore, keys: Iterable[str], say: Callable[[str], None]
) -> dict[str, StoredCommit]:
    """Return the commits that are sound, in the order of their keys; each of the others is said."""
    found: dict[str, StoredCommit] = {}
    for key in keys:
        try:
            found[key] = parse_commit(key, objects.get(key))
        except FileNotFoundError:  # removed since, by its owner
            continue
        except NewerCheckpointError as error:
            raise CheckpointError(f"{objects.address}/{key} can't be read. {error}.") from error
        except DamagedCheckpointError as error:
            say(_passed_over_message(objects, key, error))
    return found


def _passed_over_message(objects: MirrorObjectStore, key: str, reason: object) -> str:
    return f"{objects.address}/{key} was passed over: {reason}"


def download_piece(objects: MirrorObjectStore, piece: StoredFilePiece) -> bytes:
    """Return a piece's content, asked for once more where it is not what it was: that may be the line and not the store."""
    for _ in range(2):
        try:
            data = objects.get(piece.path)
        except FileNotFoundError:
            raise DamagedCheckpointError(f"{piece.path} is missing") from None
        if new_digest(piece.kind, data).hexdigest() == piece.digest:
            return data
    raise DamagedCheckpointError(f"{piece.path} is not what was sent")


def fetch_files(objects: MirrorObjectStore, files: dict[Path, StoredFile]) -> None:
    """Write files from their pieces, several at a time, on the disk when this returns."""

    def fetch_piece(path: Path, at: int, piece: StoredFilePiece) -> None:
        with path.open("r+b") as file:
            file.seek(at)
            file.write(download_piece(objects, piece))

    for path, file in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.truncate(path, file.bytes)
    threads = ThreadPoolExecutor(NUM_THREADS, "truestep-fetch")
    try:
        waiting = [
            threads.submit(fetch_piece, path, number * PIECE_BYTES, piece)
            for path, file in files.items()
            for number, piece in enumerate(file.pieces)
        ]
        for each in waiting:
            each.result()
    # who is interrupted does not wait: what is under way ends when the store is closed
    except BaseException as error:
        threads.shutdown(wait=isinstance(error, Exception), cancel_futures=True)
        raise
    threads.shutdown()
    for path in files:
        with path.open("rb") as opened:
            sync_file(opened.fileno())


def commits_in_order_to_try(commits: Sequence[StoredCommit], marks: Sequence[str]) -> Iterator[StoredCommit]:
    """Yield commits as a run would take them, newest first; those that three starts died of come last, unfit ones never."""
    made: dict[str, int] = {}
    unfit = set()
    for mark in marks:
        name, _, what = mark.removeprefix(ATTEMPT).rpartition("-")
        made[name] = made.get(name, 0) + what.isdecimal()
        unfit |= {name} if what == "unfit" else set()
    able = [each for each in reversed(commits) if each.summary.complete and each.name not in unfit]
    yield from (each for each in able if made.get(each.name, 0) < MAX_ATTEMPTS)
    yield from (each for each in able if made.get(each.name, 0) >= MAX_ATTEMPTS)


class RunFetcher:
    """Fetches what a run goes on from into its directory, whose lock the caller holds."""

    def __init__(
        self,
        objects: MirrorObjectStore,
        directory: Path,
        say: Callable[[str], None],
        note: Callable[[str], None],
    ) -> None:
        self._objects, self._directory, self._say, self._note = objects, directory, say, note
        self._checkpoints = directory / CHECKPOINTS
        self.damaged: set[str] = set()
        """The keys of the commits whose pieces are not what was sent."""
        self._ready: dict[str, Path] = {}

    def ahead(self, commits: Sequence[StoredCommit], marks: Sequence[str]) -> list[StoredCommit]:
        """Fetch the newest commit to go on from and the newest healthy one; return those, the newest first.

        To be called again when there may be others: what is there already is not fetched twice.
        """
        wanted: list[StoredCommit] = []
        for commit in commits_in_order_to_try(commits, marks):
            if (not wanted or commit.summary.healthy) and self._fetch_commit(commit):
                wanted.append(commit)
            if any(each.summary.healthy for each in wanted):
                break
        return wanted

    def _fetch_commit(self, commit: StoredCommit) -> bool:
        """Fetch a checkpoint and what lies beside it; False where something is damaged."""
        if commit.key in self._ready:
            return True
        begun, folder = time.monotonic(), self._checkpoints / f"{TEMPORARY}{commit.key.replace('/', '-')}"
        shutil.rmtree(folder, ignore_errors=True)
        files = {folder / CHECKPOINTS / name: file for name, file in commit.files.items()}
        files |= {folder / name: file for name, file in commit.beside.items()}
        try:
            fetch_files(self._objects, files)
        except DamagedCheckpointError as error:
            if commit.key not in self.damaged:
                self._say(_passed_over_message(self._objects, commit.key, error))
            self.damaged.add(commit.key)
            return False
        with replacing_file(folder / CHECKPOINTS / MANIFEST_NAME) as file:
            file.write(commit.manifest_bytes)
        self._ready[commit.key] = folder
        took = f"{bytes_text(sum(each.bytes for each in files.values()))} in {time.monotonic() - begun:.1f} s"
        self._note(f"{commit.name} fetched from {self._objects.address}: {took}")
        return True

    def settle(self, wanted: Sequence[StoredCommit], marks: Sequence[str]) -> None:
        """Make the directory what the store holds: those checkpoints alone, their metrics and media, and the marks.

        Until `write_mirror_mark` says that it is whole, another start fetches again.
        """
        write_mirror_mark(self._directory, MirrorLeaseMark(0, FETCHING))
        for path in [*self._checkpoints.iterdir()]:
            if sequence_of_checkpoint_name(path.name) is not None:  # of the past
                path.rename(path.with_name(f"{DELETED}{path.name}"))
            elif path.name.startswith(ATTEMPT):
                path.unlink()
        for commit in wanted:
            (self._ready[commit.key] / CHECKPOINTS).rename(self._checkpoints / commit.name)
        for mark in marks:
            if any(mark.startswith(f"{ATTEMPT}{commit.name}-") for commit in wanted):
                (self._checkpoints / mark).touch()
        sync_folder(CheckpointFiles(), self._checkpoints)
        self._install_other_files(wanted[0])
        self.clear(TEMPORARY, DELETED)

    def clear(self, *kinds: str) -> None:
        """Remove what is not needed any more, by how its names begin."""
        for path in self._checkpoints.iterdir():
            if path.name.startswith(kinds):
                shutil.rmtree(path, ignore_errors=True)

    def _install_other_files(self, commit: StoredCommit) -> None:
        """Put in place what lies beside the checkpoints, the file last that makes a directory a run's."""
        for name in sorted(commit.beside, key=lambda each: (each == _LAST, each)):
            (self._directory / name).parent.mkdir(parents=True, exist_ok=True)
            (self._ready[commit.key] / name).replace(self._directory / name)
        sync_folder(CheckpointFiles(), self._directory)
