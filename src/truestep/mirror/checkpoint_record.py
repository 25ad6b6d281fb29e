# SPDX-License-Identifier: Apache-2.0
"""What one object says of a checkpoint in the store: its manifest, and of which pieces its files are.

Pieces and commits lie under the number of the lease that they were sent with: `pieces/000003/blake3-...` and
`commits/000003/000042-step-1200`. Content is checked against its digest and a commit against a checksum of its own. The
pieces of a commit are named by the digest that its manifest's format has: of a checkpoint of format 1 or 2 by their SHA-256.
"""

import json
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from truestep.checkpoints.checkpoint_names import checkpoint_folder_name, sequence_of_checkpoint_name
from truestep.checkpoints.checksum import PIECE_BYTES
from truestep.checkpoints.digests import checked_hexdigest, hash_scheme_of_format, new_digest
from truestep.checkpoints.manifest import (
    CheckpointSummary,
    DamagedCheckpointError,
    Manifest,
    manifest_line_with_checksum,
    verified_manifest_body,
)
from truestep.checkpoints.manifest_encoding import parse_manifest

COMMITS, PIECES = "commits/", "pieces/"
FORMAT = 1
_BESIDE = re.compile(r"[a-z]+\.jsonl?|media/[\w%-][\w%.-]*/[0-9]+(-[0-9]+)?\.[a-z]+", re.ASCII)
_KEY = re.compile(r"commits/(\d{6,})/(\d{6,}-step-\d+)")
_PIECE = re.compile(r"pieces/(\d{6,})/(sha256|blake3)-([0-9a-f]{64})")


class StoredFilePiece(NamedTuple):
    """A piece of a file's content: the number it lies under, and its digest of this kind."""

    number: int
    kind: str
    digest: str

    @property
    def path(self) -> str:
        """Where it lies in the store."""
        return f"{PIECES}{self.number:06d}/{self.kind}-{self.digest}"


class StoredFile(NamedTuple):
    """A file as it lies in the store, in pieces of 8 MiB."""

    bytes: int
    pieces: tuple[StoredFilePiece, ...]

    @property
    def checksum(self) -> str:
        """What a manifest says of such a file."""
        if len(self.pieces) == 1:
            return self.pieces[0].digest
        digests = b"".join(bytes.fromhex(piece.digest) for piece in self.pieces)
        return new_digest(self.pieces[0].kind, digests).hexdigest()


def parse_piece_path(path: str) -> StoredFilePiece | None:
    """Return the piece that lies at a path; None for what is none."""
    match = _PIECE.fullmatch(path)
    return StoredFilePiece(int(match[1]), match[2], match[3]) if match else None


def commit_key(number: int, name: str) -> str:
    """Return where a commit lies."""
    return f"{COMMITS}{number:06d}/{name}"


def commit_order(key: str) -> tuple[int, int]:
    """Return what commits are sorted by, (0, 0) for what is no commit's path: the number of the lease, then that of the save."""
    match = _KEY.fullmatch(key)
    return (int(match[1]), sequence_of_checkpoint_name(match[2]) or 0) if match else (0, 0)


@dataclass(frozen=True, kw_only=True)
class StoredCommit:
    """A checkpoint in the store."""

    key: str
    manifest_bytes: bytes
    files: dict[str, StoredFile]
    beside: dict[str, StoredFile]
    """What lies beside the checkpoints in the run's directory, by path."""

    @cached_property
    def manifest(self) -> Manifest:
        """The checkpoint's own manifest, without what it says of tensors and state."""
        return parse_manifest(self.manifest_bytes, contents=False)

    @property
    def summary(self) -> CheckpointSummary:
        """What the checkpoint is."""
        return self.manifest.summary

    @property
    def name(self) -> str:
        """The checkpoint's name."""
        return self.key.rpartition("/")[2]

    @property
    def pieces(self) -> set[StoredFilePiece]:
        """All that it needs."""
        return {piece for file in (*self.files.values(), *self.beside.values()) for piece in file.pieces}

    def to_bytes(self) -> bytes:
        """Return it as it lies in the store."""
        body = {
            "format": FORMAT,
            "key": self.key,
            "manifest": self.manifest_bytes.decode(),
            "files": {name: _encode_stored_file(file) for name, file in self.files.items()},
            "beside": {name: _encode_stored_file(file) for name, file in self.beside.items()},
        }
        return manifest_line_with_checksum(json.dumps(body, separators=(",", ":")).encode())

    def check(self) -> None:
        """Raise a DamagedCheckpointError unless its pieces make the files that its manifest names."""
        manifest = self.manifest
        if (
            checkpoint_folder_name(manifest.summary) != self.name
            or manifest.files.keys() != self.files.keys()
        ):
            raise DamagedCheckpointError(f"{self.key}: it holds another checkpoint's manifest")
        kind = hash_scheme_of_format(manifest.format)
        for name, entry in manifest.files.items():
            file = self.files[name]
            # of format 1 the whole file was hashed, which is compared when it is loaded
            if file.bytes != entry.bytes or (kind.in_pieces and file.checksum != entry.checksum):
                raise DamagedCheckpointError(f"{self.key}: {name} is not the file that the manifest names")
        if any(piece.kind != kind.name for piece in self.pieces):  # `parse_commit` would look for others
            raise DamagedCheckpointError(f"{self.key}: its pieces are not named by their {kind.name}")


def _encode_stored_file(file: StoredFile) -> list[Any]:
    return [file.bytes, [[piece.number, piece.digest] for piece in file.pieces]]


def parse_commit(key: str, data: bytes) -> StoredCommit:
    """Read a commit, trusting nothing in it; raises a DamagedCheckpointError for what was not written so."""
    try:
        body = json.loads(verified_manifest_body(data))
        if body["format"] != FORMAT or body["key"] != key:
            raise ValueError(f"it is of format {body['format']!r} and was written as {body['key']!r}")
        manifest = body["manifest"].encode()
        kind = hash_scheme_of_format(parse_manifest(manifest, contents=False).format).name
        beside = {
            _check_file_name_is_safe(name): _parse_stored_file(entry, kind)
            for name, entry in body["beside"].items()
        }
        files = {name: _parse_stored_file(entry, kind) for name, entry in body["files"].items()}
        commit = StoredCommit(key=key, manifest_bytes=manifest, files=files, beside=beside)
        commit.check()
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise DamagedCheckpointError(f"{key}: {error}") from error
    return commit


def _check_file_name_is_safe(name: str) -> str:
    """Accept names that a run itself writes: nothing may reach outside of its directory."""
    if not _BESIDE.fullmatch(name):
        raise ValueError(f"{name!r} is no file of a run")
    return name


def _parse_stored_file(entry: Any, kind: str) -> StoredFile:
    size, listed = entry
    pieces = tuple(StoredFilePiece(int(number), kind, checked_hexdigest(digest)) for number, digest in listed)
    if type(size) is not int or len(pieces) != max(1, -(-size // PIECE_BYTES)):
        raise ValueError(f"{size!r} bytes are not {len(pieces)} pieces")
    return StoredFile(size, pieces)
