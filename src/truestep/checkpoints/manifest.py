# SPDX-License-Identifier: Apache-2.0
"""The manifest of a checkpoint: what it is, its files with sizes and checksums, its tensors and its state.

Imports no torch. On disk it is one line, `{"sha256":"<64 digits>","body":<body>}`, where the checksum is
that of the body's bytes as they stand there. This outer line is the same in every format to come, so that a
version that is too old can tell a newer checkpoint from a damaged one. The body is made and read in
`manifest_encoding.py`.
"""

import hashlib
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, cached_property
from importlib import metadata
from typing import Any, NamedTuple

from truestep.checkpoints.dtype_encoding import MAX_BYTES
from truestep.core.errors import CheckpointError

# 1: tuples and other dicts in words of their own (manifest_encoding.py), the SHA-256 of whole files. 2: SHA-256 of pieces.
FORMAT = 3  # tensors in columns, BLAKE3
MANIFEST_NAME = "manifest.json"
MAX_MANIFEST_BYTES = 1 << 30  # ten million tensors of 100 bytes; more is damage, and not read into memory
_PREFIX, _MIDDLE, _SUFFIX = b'{"sha256":"', b'","body":', b"}\n"
HEAD_BYTES = len(_PREFIX) + 64 + len(_MIDDLE)


@cache
def truestep_version() -> str:
    """Return the version of truestep, read once."""
    return metadata.version("truestep")


class DamagedCheckpointError(CheckpointError):
    """A checkpoint is not what was written: which of its files, and why."""


class NewerCheckpointError(CheckpointError):
    """A checkpoint is sound, and written by a newer version."""


class ManifestFile(NamedTuple):
    """Size and checksum of a file."""

    bytes: int
    checksum: str


class TensorShard(NamedTuple):
    """A box of a tensor: where it lies in the tensor, and where in a file."""

    file: str
    key: str
    begin: int
    end: int
    offset: tuple[int, ...]
    shape: tuple[int, ...]


class ManifestTensor(NamedTuple):
    """A whole tensor: dtype, global shape, the memory order it had if not contiguous, and its shards."""

    dtype: str
    shape: tuple[int, ...]
    shards: tuple[TensorShard, ...]
    stride: tuple[int, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class CheckpointSummary:
    """What is known of a checkpoint without reading its tensors."""

    sequence: int
    step: int
    reason: str
    healthy: bool
    complete: bool
    metrics: dict[str, Any] = field(default_factory=dict)
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    truestep: str = field(default_factory=truestep_version)


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Everything about a checkpoint but its tensors' values; metrics and state are encoded trees."""

    summary: CheckpointSummary
    files: dict[str, ManifestFile]
    tensors: dict[str, ManifestTensor]
    state: Any
    format: int = FORMAT
    rows: tuple[str, ...] = ()
    """The name of the tensor in each row, by which the nodes of the state name them since format 3."""

    def shards_in(self, file: str) -> list[tuple[str, TensorShard]]:
        """Return the shards in a file with their tensors' names, in the order in which they lie there."""
        return self._shards_by_file.get(file, [])

    @cached_property
    def _shards_by_file(self) -> dict[str, list[tuple[str, TensorShard]]]:
        return shards_by_file(self.tensors)

    def tensor_name(self, node: dict[str, Any]) -> str:
        """Return the name of the tensor that a node of the state stands for; raises ValueError for a row that is not there."""
        found = node["tensor"]
        if type(found) is not int:
            return str(found)
        if not 0 <= found < len(self.rows):
            raise ValueError(f"the state names row {found} of {len(self.rows)} tensors")
        return self.rows[found]


def shards_by_file(tensors: dict[str, ManifestTensor]) -> dict[str, list[tuple[str, TensorShard]]]:
    """Return the shards in each file with their tensors' names, in the order in which they lie there."""
    found: dict[str, list[tuple[str, TensorShard]]] = {}
    for name, tensor in tensors.items():
        for shard in tensor.shards:
            found.setdefault(shard.file, []).append((name, shard))
    for shards in found.values():
        shards.sort(key=lambda item: (item[1].begin, item[1].end))
    return found


def manifest_line_with_checksum(body: bytes) -> bytes:
    """Put a body and its checksum into one line."""
    return _PREFIX + hashlib.sha256(body).hexdigest().encode() + _MIDDLE + body + _SUFFIX


def read_promised_checksum(head: bytes) -> str:
    """Return the checksum that a manifest's first bytes promise for its body."""
    digest = head[len(_PREFIX) : len(_PREFIX) + 64]
    if len(head) != HEAD_BYTES or head != _PREFIX + digest + _MIDDLE:
        raise DamagedCheckpointError(f"{MANIFEST_NAME}: it does not begin as a manifest does")
    return digest.decode("ascii", "replace")


def verified_manifest_body(data: bytes) -> bytes:
    """Return the body of a manifest whose checksum holds; raises DamagedError for any other bytes."""
    promised = read_promised_checksum(data[:HEAD_BYTES])
    if not data.endswith(_SUFFIX):
        raise DamagedCheckpointError(f"{MANIFEST_NAME}: its end is missing")
    body = data[HEAD_BYTES : -len(_SUFFIX)]
    if hashlib.sha256(body).hexdigest() != promised:
        raise DamagedCheckpointError(f"{MANIFEST_NAME}: its content does not have the checksum it names")
    return body


def checked_file_name(name: str) -> str:
    """Accept a bare name only: nothing may reach outside of the checkpoint's own folder. Raises ValueError for any other."""
    if not name or name in (".", "..", MANIFEST_NAME) or set(name) & set("/\\\0"):
        raise ValueError(f"{name!r} is no name of a file beside the manifest")
    name.encode()  # a lone surrogate is of no file's name, and a ValueError
    return name


def check_size_number(value: Any) -> int:
    """Return a number of bytes or elements that there can be; raises ValueError for what is none."""
    # not isinstance: JSON's true is an int to Python
    if type(value) is not int or not 0 <= value <= MAX_BYTES:
        raise ValueError(f"{value!r} is no size")
    return value


def check_size_numbers(value: Any) -> tuple[int, ...]:
    """Return a shape, strides or offsets."""
    return tuple(check_size_number(item) for item in value)


def check_shard(shard: TensorShard, shape: tuple[int, ...]) -> None:
    """Raise ValueError unless a shard lies in a tensor of this shape."""
    if not len(shard.offset) == len(shard.shape) == len(shape):
        raise ValueError(
            f"a shard of shape {shard.shape} at {shard.offset} is no part of a tensor of shape {shape}"
        )
    if any(at + size > whole for at, size, whole in zip(shard.offset, shard.shape, shape, strict=True)):
        raise ValueError(
            f"a shard of shape {shard.shape} at {shard.offset} exceeds its tensor of shape {shape}"
        )
