# SPDX-License-Identifier: Apache-2.0
"""The manifest of a checkpoint: what it is, its files with sizes and checksums, its tensors and its state.

Imports no torch. On disk it is one line, `{"sha256":"<64 digits>","body":<body>}`, where the checksum is
that of the body's bytes as they stand there. This outer line is the same in every format to come, so that a
version that is too old can tell a newer checkpoint from a damaged one.
"""

import hashlib
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, cached_property
from importlib import metadata
from typing import Any

from truestep.checkpoints.dtypes import DTYPES, MAX_BYTES, check_tensor_size
from truestep.checkpoints.older import upgrade_older_state
from truestep.core.collector import collector_at_rest
from truestep.core.errors import CheckpointError

FORMAT = 2  # 1: tuples and other dicts in words of their own (older.py), the SHA-256 of whole files
MANIFEST_NAME = "manifest.json"
MAX_MANIFEST_BYTES = 1 << 30  # three million tensors of 300 bytes; more is damage, and not read into memory
_PREFIX, _MIDDLE, _SUFFIX = b'{"sha256":"', b'","body":', b"}\n"
HEAD_BYTES = len(_PREFIX) + 64 + len(_MIDDLE)


@cache
def version_for_manifest() -> str:
    """Return the version of truestep, read once."""
    return metadata.version("truestep")


class DamagedCheckpointError(CheckpointError):
    """A checkpoint is not what was written: which of its files, and why."""


class NewerCheckpointError(CheckpointError):
    """A checkpoint is sound, and written by a newer version."""


@dataclass(frozen=True)
class ManifestFile:
    """Size and checksum of a file."""

    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class TensorShard:
    """A box of a tensor: where it lies in the tensor, and where in a file."""

    file: str
    key: str
    begin: int
    end: int
    offset: tuple[int, ...]
    shape: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class ManifestTensor:
    """A whole tensor: dtype, global shape, the memory order it had if not contiguous, and its shards."""

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...] | None = None
    shards: tuple[TensorShard, ...]


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
    truestep: str = field(default_factory=version_for_manifest)


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Everything about a checkpoint but its tensors' values; metrics and state are encoded trees."""

    summary: CheckpointSummary
    files: dict[str, ManifestFile]
    tensors: dict[str, ManifestTensor]
    state: Any
    format: int = FORMAT

    def shards_in(self, file: str) -> list[tuple[str, TensorShard]]:
        """Return the shards in a file with their tensors' names, in the order in which they lie there."""
        return self._shards.get(file, [])

    @cached_property
    def _shards(self) -> dict[str, list[tuple[str, TensorShard]]]:
        found: dict[str, list[tuple[str, TensorShard]]] = {}
        for name, tensor in self.tensors.items():
            for shard in tensor.shards:
                found.setdefault(shard.file, []).append((name, shard))
        for shards in found.values():
            shards.sort(key=lambda item: (item[1].begin, item[1].end))
        return found

    def to_bytes(self) -> bytes:
        """Return the manifest as it lies on disk."""
        return sealed_manifest(self, manifest_tensors_text(self.tensors))


def manifest_tensors_text(tensors: dict[str, ManifestTensor]) -> str:
    """Return the entries of tensors as they stand between the braces of a manifest's `tensors`."""
    return _json({name: _tensor_json(entry) for name, entry in tensors.items()})[1:-1]


def _tensor_json(entry: ManifestTensor) -> dict[str, Any]:
    stride = {} if entry.stride is None else {"stride": entry.stride}
    return {
        "dtype": entry.dtype,
        "shape": entry.shape,
        **stride,
        "shards": [vars(shard) for shard in entry.shards],
    }


def sealed_manifest(manifest: Manifest, tensors: str) -> bytes:
    """Return a manifest as it lies on disk, with the text of its tensors, which is the same from save to save."""
    body = {"format": manifest.format, **vars(manifest.summary)}
    body["files"] = {name: vars(entry) for name, entry in manifest.files.items()}
    text = f'{_json(body)[:-1]},"tensors":{{{tensors}}},"state":{_json(manifest.state)}}}'
    return seal_manifest(text.encode())


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def seal_manifest(body: bytes) -> bytes:
    """Put a body and its checksum into one line."""
    return _PREFIX + hashlib.sha256(body).hexdigest().encode() + _MIDDLE + body + _SUFFIX


def manifest_checksum(head: bytes) -> str:
    """Return the checksum that a manifest's first bytes promise for its body."""
    digest = head[len(_PREFIX) : len(_PREFIX) + 64]
    if len(head) != HEAD_BYTES or head != _PREFIX + digest + _MIDDLE:
        raise DamagedCheckpointError(f"{MANIFEST_NAME}: it does not begin as a manifest does")
    return digest.decode("ascii", "replace")


def manifest_body(data: bytes) -> bytes:
    """Return the body of a manifest whose checksum holds; raises DamagedError for any other bytes."""
    promised = manifest_checksum(data[:HEAD_BYTES])
    if not data.endswith(_SUFFIX):
        raise DamagedCheckpointError(f"{MANIFEST_NAME}: its end is missing")
    body = data[HEAD_BYTES : -len(_SUFFIX)]
    if hashlib.sha256(body).hexdigest() != promised:
        raise DamagedCheckpointError(f"{MANIFEST_NAME}: its content does not have the checksum it names")
    return body


def parse_manifest(data: bytes) -> Manifest:
    """Read a manifest, trusting nothing in it.

    Raises DamagedError for what `Manifest.to_bytes` can't have written, NewerFormatError for a newer format.
    """
    body_bytes = manifest_body(data)
    try:
        with collector_at_rest():
            # not from bytes: that guesses among encodings
            body = json.loads(body_bytes.decode(), parse_constant=_no_constant)
            _check_format(body)
            return _manifest(body)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise DamagedCheckpointError(f"{MANIFEST_NAME}: {type(error).__name__}: {error}") from error


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _check_format(body: dict[str, Any]) -> None:
    found = body["format"]
    if type(found) is not int or found < 1:
        raise ValueError(f"the format is {found!r}")
    if found > FORMAT:
        # Its checksum was right, so that this is another version's file and no damaged one.
        raise NewerCheckpointError(
            f"it is sound, but in format {found}, written by truestep {body.get('truestep')}. This is "
            f"truestep "
            f"{version_for_manifest()}, which reads formats up to {FORMAT}: install the newer version to use it"
        )


def _manifest(body: dict[str, Any]) -> Manifest:
    summary = CheckpointSummary(**{name: _typed(body, name, kind) for name, kind in _SUMMARY_TYPES.items()})
    files = manifest_files(body["files"])
    tensors = manifest_tensors(body["tensors"], files)
    state = body["state"] if body["format"] > 1 else upgrade_older_state(body["state"])
    return Manifest(summary=summary, files=files, tensors=tensors, state=state, format=body["format"])


_SUMMARY_TYPES = {
    "sequence": int,
    "step": int,
    "reason": str,
    "healthy": bool,
    "complete": bool,
    "metrics": dict,
    "created": str,
    "truestep": str,
}


def _typed(body: dict[str, Any], name: str, kind: type) -> Any:
    # not isinstance: JSON's true is an int to Python
    if type(body[name]) is not kind:
        raise ValueError(f"{name!r} is {body[name]!r}, not of type {kind.__name__}")
    return body[name]


def manifest_files(entries: dict[str, Any]) -> dict[str, ManifestFile]:
    """Read the entries of files, trusting nothing in them; raises KeyError, TypeError or ValueError."""
    return {_file_name(name): _file(entry) for name, entry in entries.items()}


def manifest_tensors(entries: dict[str, Any], files: dict[str, ManifestFile]) -> dict[str, ManifestTensor]:
    """Read the entries of tensors, which lie in these files, in the same way."""
    return {name: _tensor(entry, files) for name, entry in entries.items()}


def _file_name(name: str) -> str:
    """Accept a bare name only: nothing may reach outside of the checkpoint's own folder."""
    if not name or name in (".", "..", MANIFEST_NAME) or set(name) & set("/\\\0"):
        raise ValueError(f"{name!r} is no name of a file beside the manifest")
    name.encode()  # a lone surrogate is of no file's name, and a ValueError
    return name


def _file(entry: dict[str, Any]) -> ManifestFile:
    digest = _typed(entry, "sha256", str)
    if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
        raise ValueError(f"{digest!r} is no SHA-256")
    return ManifestFile(_count(entry["bytes"]), digest)


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= MAX_BYTES:
        raise ValueError(f"{value!r} is no size")
    return value


def _counts(value: Any) -> tuple[int, ...]:
    return tuple(_count(item) for item in value)


def _tensor(entry: dict[str, Any], files: dict[str, ManifestFile]) -> ManifestTensor:
    if entry["dtype"] not in DTYPES:
        raise ValueError(f"the dtype {entry['dtype']!r} is unknown")
    shape = _counts(entry["shape"])
    check_tensor_size(shape, DTYPES[entry["dtype"]].element_bytes)
    stride = _counts(entry["stride"]) if "stride" in entry else None
    shards = tuple(_shard(shard, shape, files) for shard in entry["shards"])
    return ManifestTensor(dtype=entry["dtype"], shape=shape, stride=stride, shards=shards)


def _shard(entry: dict[str, Any], shape: tuple[int, ...], files: dict[str, ManifestFile]) -> TensorShard:
    shard = TensorShard(
        file=entry["file"],
        key=_typed(entry, "key", str),
        begin=_count(entry["begin"]),
        end=_count(entry["end"]),
        offset=_counts(entry["offset"]),
        shape=_counts(entry["shape"]),
    )
    if shard.file not in files:
        raise ValueError(f"a tensor lies in {shard.file!r}, which is not among the files")
    if not len(shard.offset) == len(shard.shape) == len(shape):
        raise ValueError(
            f"a shard of shape {shard.shape} at {shard.offset} is no part of a tensor of shape {shape}"
        )
    if any(at + size > whole for at, size, whole in zip(shard.offset, shard.shape, shape, strict=True)):
        raise ValueError(
            f"a shard of shape {shard.shape} at {shard.offset} exceeds its tensor of shape {shape}"
        )
    return shard
