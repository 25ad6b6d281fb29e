# SPDX-License-Identifier: Apache-2.0
"""Sending checkpoints of a directory to the store, and removing there what is not to be kept."""

import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from truestep.checkpoints.checkpoint import Checkpoint
from truestep.checkpoints.checksum import PIECE_BYTES
from truestep.checkpoints.digests import hash_scheme_of_format, new_digest
from truestep.checkpoints.manifest import MANIFEST_NAME, CheckpointSummary
from truestep.checkpoints.retention import Retention
from truestep.core.atomic_files import is_unfinished_file, read_regular_file, stamp_of_file
from truestep.mirror.checkpoint_record import (
    COMMITS,
    PIECES,
    StoredCommit,
    StoredFile,
    StoredFilePiece,
    commit_key,
    commit_order,
    parse_commit,
    parse_piece_path,
)
from truestep.mirror.lease import HeldLease
from truestep.mirror.store_requests import MirrorObjectStore

NUM_THREADS = 4  # and as many pieces in memory
BESIDE = ("config.json", "environment.json", "choices.json", "doctor.json", "layers.jsonl")
METRICS, MEDIA = "metrics.jsonl", "media"


class LeaseLostError(Exception):
    """Another process has gone on with the run."""


class CheckpointPush:
    """What this lease has sent, and what is in the store by its number and those before it.

    It relies on pieces that it sent itself, and on those of the commit that it goes on from: what else there is, somebody who was
    stopped may be about to remove.
    """

    def __init__(
        self, objects: MirrorObjectStore, held: HeldLease, directory: Path, retention: Retention
    ) -> None:
        self._objects, self._held, self._directory, self._retention = objects, held, directory, retention
        self.commits: dict[str, StoredCommit] = {}
        self._known: dict[tuple[str, str], StoredFilePiece] = {}  # by digest
        self._media: dict[tuple[Path, str, tuple[int, ...]], StoredFile] = {}
        self._kind = ""  # of the digests that the checkpoint under way has
        self._is_swept = False

    def begin(self, commits: dict[str, StoredCommit], relied: StoredCommit | None) -> None:
        """Take over what is in the store; `relied` is the commit that this run goes on from, where it is the newest."""
        self.commits = dict(commits)
        if relied is not None:
            there = self._objects.names(PIECES)
            self._known = {piece[1:]: piece for piece in relied.pieces if piece.path in there}

    # ------------------------------------------------------------------ which

    def wanted(self, there: list[Checkpoint]) -> list[Checkpoint]:
        """Return the checkpoints of the directory that are to be sent, in order: the newest, then the best ones."""
        sent = {commit.manifest_bytes for commit in self.commits.values()}
        unsent = {
            self._commit_key_of_checkpoint(each): each
            for each in there
            if each.summary.complete
            and self._commit_key_of_checkpoint(each) not in self.commits
            and read_regular_file(each.path / MANIFEST_NAME) not in sent
        }
        summaries = {key: each.summary for key, each in unsent.items()}
        kept = self._commit_keys_to_keep(replace(self._retention, last=1), summaries)
        return [unsent[key] for key in sorted(kept & unsent.keys(), key=commit_order, reverse=True)]

    def _commit_key_of_checkpoint(self, checkpoint: Checkpoint) -> str:
        return commit_key(self._held.lease.number, checkpoint.name)

    def _commit_keys_to_keep(self, retention: Retention, added: dict[str, CheckpointSummary]) -> set[str]:
        """Return the keys to keep of all commits and what is added: a save's number may stand twice in them."""
        summaries = {key: commit.summary for key, commit in self.commits.items()} | added
        keys = sorted(summaries, key=commit_order)
        kept = retention.kept([replace(summaries[key], sequence=place) for place, key in enumerate(keys)])
        return {keys[place] for place in kept}

    # ------------------------------------------------------------------ send

    def send(self, checkpoint: Checkpoint) -> None:
        """Send a checkpoint and what belongs to it, then the commit, by which it is there.

        Raises FileNotFoundError where it was pruned meanwhile, DamagedCheckpointError where it is not what its manifest says.
        """
        manifest = read_regular_file(checkpoint.path / MANIFEST_NAME)
        self._kind = hash_scheme_of_format(checkpoint.manifest.format).name
        with ThreadPoolExecutor(NUM_THREADS, "truestep-send") as threads:
            files = {
                name: self._send_file(threads, checkpoint.path / name, entry.bytes)
                for name, entry in checkpoint.manifest.files.items()
            }
            beside = self._send_metrics_and_media(threads, checkpoint)
        commit = StoredCommit(
            key=self._commit_key_of_checkpoint(checkpoint),
            manifest_bytes=manifest,
            files=files,
            beside=beside,
        )
        commit.check()
        self._check_lease_is_held()
        try:
            self._objects.create(commit.key, commit.to_bytes())
        except FileExistsError:
            # made before, its answer was lost, and what lies beside the checkpoint is newer by now
            commit = parse_commit(commit.key, self._objects.get(commit.key))
        self.commits[commit.key] = commit

    def _check_lease_is_held(self) -> None:
        if not self._held.still_holds():
            raise LeaseLostError

    def _send_file(self, threads: ThreadPoolExecutor, path: Path, size: int) -> StoredFile:
        """Send a file's first bytes."""

        def read(at: int, end: int) -> bytes:
            with path.open("rb") as file:
                file.seek(at)
                data = file.read(end - at)
            if len(data) < end - at:
                raise FileNotFoundError(f"{path} was cut")
            return data

        return self._send_missing_pieces(threads, size, read)

    def _send_bytes(self, threads: ThreadPoolExecutor, data: bytes) -> StoredFile:
        return self._send_missing_pieces(threads, len(data), lambda at, end: data[at:end])

    def _send_missing_pieces(
        self, threads: ThreadPoolExecutor, size: int, read: Callable[[int, int], bytes]
    ) -> StoredFile:
        """Send the pieces that are not there yet, several at a time; one by one where the interpreter is ending."""

        def send_piece(at: int) -> StoredFilePiece:
            data = read(at, min(at + PIECE_BYTES, size))
            piece = StoredFilePiece(
                self._held.lease.number, self._kind, new_digest(self._kind, data).hexdigest()
            )
            if (known := self._known.get(piece[1:])) is not None:
                return known
            self._objects.put(piece.path, data)
            self._known[piece[1:]] = piece
            return piece

        places = range(0, max(size, 1), PIECE_BYTES)
        try:
            waiting = [threads.submit(send_piece, at) for at in places]
        except RuntimeError:  # which starts no threads then
            return StoredFile(size, tuple(map(send_piece, places)))
        return StoredFile(size, tuple(each.result() for each in waiting))

    def _send_metrics_and_media(
        self, threads: ThreadPoolExecutor, checkpoint: Checkpoint
    ) -> dict[str, StoredFile]:
        """Send what lies beside the checkpoints: the metrics up to the checkpoint's own mark, and media."""
        there = [self._directory / name for name in BESIDE if (self._directory / name).is_file()]
        sent = {path.name: self._send_bytes(threads, read_regular_file(path)) for path in there}
        sent[METRICS] = self._send_bytes(threads, self._metrics_up_to_checkpoint(checkpoint))
        for path in sorted((self._directory / MEDIA).glob("*/*")):
            if not (path.is_symlink() or is_unfinished_file(path)):
                # written once: it is not read again for each checkpoint
                key = path, self._kind, stamp_of_file(path.stat())
                kept = self._media.get(key)
                if kept is None or any(self._known.get(piece[1:]) != piece for piece in kept.pieces):
                    self._media[key] = self._send_bytes(threads, read_regular_file(path))
                sent[path.relative_to(self._directory).as_posix()] = self._media[key]
        return sent

    def _metrics_up_to_checkpoint(self, checkpoint: Checkpoint) -> bytes:
        """Return the lines that a checkpoint was saved after; of a way that was left they lie beside the file (report/history)."""
        position, checksum = checkpoint.value("logbook", "mark")
        for path in (self._directory / METRICS, *self._directory.glob(".metrics-[0-9]*.jsonl")):
            data = read_regular_file(path)[:position] if path.is_file() else b""
            if len(data) == position and zlib.crc32(data) == checksum:
                return data
        raise FileNotFoundError(f"the metrics before {checkpoint.name} are gone")

    # ------------------------------------------------------------------ remove

    def prune(self) -> None:
        """Remove the commits that are not to be kept, then the pieces that none needs."""
        dropped = self.commits.keys() - self._commit_keys_to_keep(self._retention, {})
        waste = {*self._known.values()}.union(*(self.commits[key].pieces for key in dropped))
        self._remove_commits(dropped)
        if not self._is_swept:
            waste |= self._unused_pieces()
        waste -= {piece for commit in self.commits.values() for piece in commit.pieces}
        if waste:
            self._check_lease_is_held()
            self._known = {digest: piece for digest, piece in self._known.items() if piece not in waste}
            self._objects.remove(piece.path for piece in sorted(waste))
        self._is_swept = True

    def _unused_pieces(self) -> set[StoredFilePiece]:
        """Return the pieces of earlier numbers, once the commits there that do not count are gone."""
        earlier = range(1, self._held.lease.number)
        there = self._objects.names(COMMITS).keys() - self._held.lease.commits
        self._remove_commits({key for key in there if commit_order(key)[0] in earlier})
        pieces = map(parse_piece_path, self._objects.names(PIECES))
        return {piece for piece in pieces if piece and piece.number in earlier}

    def _remove_commits(self, keys: set[str]) -> None:
        if keys:
            self._check_lease_is_held()
            self._objects.remove(sorted(keys))
            for key in keys:
                self.commits.pop(key, None)
