# SPDX-License-Identifier: Apache-2.0
"""The body of a manifest, made and read. Imports no torch.

In format 3 it is `{"format":3,"truestep":"...","head_bytes":n,"head_blake3":"...","head":{...},"names":[...],...,"state":...}`:
the head says what the checkpoint is, its files, and of each part that follows how many bytes it has and its BLAKE3. So
whoever wants some of it need not read the rest, and can still tell that it is what was written.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from truestep.checkpoints.columns import (
    COLUMNS,
    RowsOfFile,
    TensorColumns,
    compact_json,
    tensor_columns,
    tensors_of_columns,
)
from truestep.checkpoints.digests import NEWEST_DIGEST, checked_hexdigest, new_digest
from truestep.checkpoints.dtypes import DTYPES, check_tensor_size
from truestep.checkpoints.manifest import (
    FORMAT,
    MANIFEST_NAME,
    CheckpointSummary,
    DamagedCheckpointError,
    Manifest,
    ManifestFile,
    ManifestTensor,
    NewerCheckpointError,
    TensorShard,
    check_shard,
    checked_count,
    checked_counts,
    checked_file_name,
    manifest_body,
    seal_manifest,
    version_for_manifest,
)
from truestep.core.collector import collector_at_rest

PARTS = (*COLUMNS, "state")
_START = re.compile(
    rb'\{"format":3,"truestep":("[^"\\]*"),"head_bytes":(\d{1,10}),"head_blake3":"([0-9a-f]{64})","head":'
)
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


def manifest_bytes(manifest: Manifest, columns: TensorColumns | None = None) -> bytes:
    """Return a manifest as it lies on disk; the columns of its tensors are the same from save to save."""
    columns = columns or tensor_columns(manifest.tensors, manifest.files)
    head = {
        **{name: value for name, value in vars(manifest.summary).items() if name != "truestep"},
        "files": files_json(manifest.files, columns),
    }
    parts = columns.texts | {"state": compact_json(manifest.state)}
    return seal_manifest(manifest_text(manifest.summary.truestep, head, parts))


def files_json(files: dict[str, ManifestFile], columns: TensorColumns) -> dict[str, Any]:
    """Return what a manifest says of its files."""
    return {
        name: {"bytes": entry.bytes, NEWEST_DIGEST.name: entry.checksum, **columns.rows_of(name)._asdict()}
        for name, entry in files.items()
    }


def files_of_json(entries: dict[str, Any]) -> dict[str, ManifestFile]:
    """Read what a manifest says of its files, trusting nothing in it; raises KeyError, TypeError or ValueError."""
    return {
        checked_file_name(name): ManifestFile(
            checked_count(entry["bytes"]), checked_hexdigest(entry[NEWEST_DIGEST.name])
        )
        for name, entry in entries.items()
    }


def rows_of_json(entries: dict[str, Any]) -> dict[str, RowsOfFile]:
    """Read in the same way which rows lie in each file."""
    return {
        name: RowsOfFile(checked_count(entry["rows"]), checked_count(entry["prefix"]))
        for name, entry in entries.items()
    }


def manifest_text(truestep: str, head: dict[str, Any], parts: dict[str, bytes]) -> bytes:
    """Return the body of a head and the parts that follow it, each with its digest in the head."""
    listed = {name: [len(text), _digest(text)] for name, text in parts.items()}
    text = compact_json({**head, "parts": listed})
    start = f'{{"format":{FORMAT},"truestep":{json.dumps(truestep)},"head_bytes":{len(text)}'
    pieces = [start.encode(), f',"head_blake3":"{_digest(text)}","head":'.encode(), text]
    for name, part in parts.items():
        pieces += [_key_bytes(name), part]
    return b"".join([*pieces, b"}"])


def _key_bytes(name: str) -> bytes:
    return f',"{name}":'.encode()


def _digest(text: bytes | memoryview) -> str:
    return new_digest(NEWEST_DIGEST.name, text).hexdigest()


def parse_manifest(data: bytes, *, contents: bool = True) -> Manifest:
    """Read a manifest, trusting nothing in it; without `contents` what it says of tensors and state is left out.

    Raises DamagedError for what `manifest_bytes` can't have written, NewerFormatError for a newer format.
    """
    body = manifest_body(data)
    try:
        with collector_at_rest():
            if (start := _START.match(body)) is not None:
                return _manifest(body, start, contents=contents)
            return _older_manifest(_json(body))
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise DamagedCheckpointError(f"{MANIFEST_NAME}: {type(error).__name__}: {error}") from error


def _json(text: bytes) -> Any:
    # not from bytes: that guesses among encodings
    return json.loads(text.decode(), parse_constant=_no_constant)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _manifest(body: bytes, start: re.Match[bytes], *, contents: bool) -> Manifest:
    head = manifest_head(body, start)
    summary, files = _summary(head), files_of_json(head["files"])
    if not contents:
        return Manifest(summary=summary, files=files, tensors={}, state=None)
    parts = dict(_verified_parts(body, start, head))
    tensors, rows = tensors_of_columns(parts, rows_of_json(head["files"]))
    return Manifest(summary=summary, files=files, tensors=tensors, state=parts["state"], rows=rows)


def manifest_head(body: bytes, start: re.Match[bytes] | None = None) -> dict[str, Any]:
    """Return the head, of which the first bytes of a body are enough; raises ValueError where it is not what was written."""
    start = start or _START.match(body)
    if start is None:
        raise ValueError(f"it does not begin as a manifest of format {FORMAT}")
    text = body[start.end() : start.end() + int(start[2])]
    if _digest(text) != start[3].decode():
        raise ValueError("its head does not have the checksum that it names")
    head: dict[str, Any] = _json(text)
    return {**head, "truestep": json.loads(start[1])}


def _verified_parts(body: bytes, start: re.Match[bytes], head: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the parts that follow the head, each checked by its own digest."""
    at = start.end() + int(start[2])
    if tuple(head["parts"]) != PARTS:
        raise ValueError(f"its parts are {', '.join(head['parts'])}, not {', '.join(PARTS)}")
    for name, (size, digest) in head["parts"].items():
        before = _key_bytes(name)
        begin, end = at + len(before), at + len(before) + checked_count(size)
        text = body[begin:end]
        if body[at:begin] != before or len(text) != size or _digest(text) != digest:
            raise ValueError(f"its part {name!r} does not have the checksum in the head")
        yield name, _json(text)
        at = end
    if body[at:] != b"}":
        raise ValueError("more follows than the head says")


def _older_manifest(body: dict[str, Any]) -> Manifest:
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
    if found == FORMAT:
        raise ValueError(f"it does not begin as a manifest of format {FORMAT}")
    files = older_files(body["files"])
    tensors = older_tensors(body["tensors"], files)
    state = body["state"] if found > 1 else upgrade_older_state(body["state"])
    return Manifest(summary=_summary(body), files=files, tensors=tensors, state=state, format=found)


def _summary(body: dict[str, Any]) -> CheckpointSummary:
    return CheckpointSummary(**{name: _typed(body, name, kind) for name, kind in _SUMMARY_TYPES.items()})


def _typed(body: dict[str, Any], name: str, kind: type) -> Any:
    # not isinstance: JSON's true is an int to Python
    if type(body[name]) is not kind:
        raise ValueError(f"{name!r} is {body[name]!r}, not of type {kind.__name__}")
    return body[name]


# The formats before this one load for ever and are written no more. In formats 1 and 2 the tensors were a dict of dicts by their
# names, which stood in the state as well. In format 1 a run spelt out itself what its checkpoints had no word for: a tuple was
# `{"__tuple__": [...]}`, a dict whose keys are no strings, or begin with two underscores, `{"__dict__": [[key, value], ...]}`, a
# Counter `{"__counter__": [[key, value], ...]}`. Only the parts that a run wrote so are read so: elsewhere such keys are a state's
# own.

_OF_A_RUN = ("user", "random", "random_at_epoch")
_OF_A_LEARNER = ("optimizers", "schedules")
_TAGS = {"__tuple__": "tuple", "__dict__": "items", "__counter__": "counter"}


def upgrade_older_state(state: Any) -> Any:
    """Return the tree of a state in the words of today."""
    parts = _children(state)
    learners = _children(parts.get("learners"))
    if not {"cursor", "random", "logbook"} <= parts.keys():
        return state  # a store without a run
    for name in _OF_A_RUN:
        if name in parts:
            parts[name] = _translated(parts[name])
    for learner in map(_children, learners.values()):
        for name in _OF_A_LEARNER:
            if name in learner:
                learner[name] = _translated(learner[name])
    return state


def _children(node: Any) -> dict[str, Any]:
    children = node.get("dict") if isinstance(node, dict) else None
    return children if isinstance(children, dict) else {}


def _translated(node: Any) -> Any:
    if isinstance(node, list):
        return [_translated(item) for item in node]
    if not isinstance(node, dict) or "dict" not in node:
        return node
    children = node["dict"]
    if len(children) == 1 and (tag := _TAGS.get(next(iter(children)))):
        (content,) = children.values()
        return {tag: [_translated(item) for item in content]}
    return {"dict": {key: _translated(child) for key, child in children.items()}}


def older_files(entries: dict[str, Any]) -> dict[str, ManifestFile]:
    """Read the entries of files, trusting nothing in them; raises KeyError, TypeError or ValueError."""
    return {
        checked_file_name(name): ManifestFile(
            checked_count(entry["bytes"]), checked_hexdigest(entry["sha256"])
        )
        for name, entry in entries.items()
    }


def older_tensors(entries: dict[str, Any], files: dict[str, ManifestFile]) -> dict[str, ManifestTensor]:
    """Read the entries of tensors, which lie in these files, in the same way."""
    return {name: _tensor(entry, files) for name, entry in entries.items()}


def _tensor(entry: dict[str, Any], files: dict[str, ManifestFile]) -> ManifestTensor:
    if entry["dtype"] not in DTYPES:
        raise ValueError(f"the dtype {entry['dtype']!r} is unknown")
    shape = checked_counts(entry["shape"])
    check_tensor_size(shape, DTYPES[entry["dtype"]].element_bytes)
    stride = checked_counts(entry["stride"]) if "stride" in entry else None
    shards = tuple(_shard(shard, shape, files) for shard in entry["shards"])
    return ManifestTensor(dtype=entry["dtype"], shape=shape, stride=stride, shards=shards)


def _shard(entry: dict[str, Any], shape: tuple[int, ...], files: dict[str, ManifestFile]) -> TensorShard:
    if type(entry["key"]) is not str:
        raise ValueError(f"{entry['key']!r} is no name in a file")
    shard = TensorShard(
        file=entry["file"],
        key=entry["key"],
        begin=checked_count(entry["begin"]),
        end=checked_count(entry["end"]),
        offset=checked_counts(entry["offset"]),
        shape=checked_counts(entry["shape"]),
    )
    if shard.file not in files:
        raise ValueError(f"a tensor lies in {shard.file!r}, which is not among the files")
    check_shard(shard, shape)
    return shard
