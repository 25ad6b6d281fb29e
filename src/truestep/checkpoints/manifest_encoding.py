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

from truestep.checkpoints.digests import NEWEST_DIGEST, checked_hexdigest, new_digest
from truestep.checkpoints.dtype_encoding import DTYPES, check_tensor_size
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
    check_size_number,
    check_size_numbers,
    checked_file_name,
    manifest_line_with_checksum,
    truestep_version,
    verified_manifest_body,
)
from truestep.checkpoints.tensor_columns import (
    COLUMNS,
    FileRowCounts,
    TensorColumns,
    compact_json,
    decode_tensor_columns,
    encode_tensor_columns,
)
from truestep.core.garbage_collection import pause_garbage_collector

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
    columns = columns or encode_tensor_columns(manifest.tensors, manifest.files)
    head = {
        **{name: value for name, value in vars(manifest.summary).items() if name != "truestep"},
        "files": encode_manifest_files(manifest.files, columns),
    }
    parts = columns.texts | {"state": compact_json(manifest.state)}
    return manifest_line_with_checksum(join_head_and_parts(manifest.summary.truestep, head, parts))


def encode_manifest_files(files: dict[str, ManifestFile], columns: TensorColumns) -> dict[str, Any]:
    """Return what a manifest says of its files."""
    return {
        name: {"bytes": entry.bytes, NEWEST_DIGEST.name: entry.checksum, **columns.rows_of(name)._asdict()}
        for name, entry in files.items()
    }


def decode_manifest_files(entries: dict[str, Any]) -> dict[str, ManifestFile]:
    """Read what a manifest says of its files, trusting nothing in it; raises KeyError, TypeError or ValueError."""
    return {
        checked_file_name(name): ManifestFile(
            check_size_number(entry["bytes"]), checked_hexdigest(entry[NEWEST_DIGEST.name])
        )
        for name, entry in entries.items()
    }


def decode_file_row_counts(entries: dict[str, Any]) -> dict[str, FileRowCounts]:
    """Read in the same way which rows lie in each file."""
    return {
        name: FileRowCounts(check_size_number(entry["rows"]), check_size_number(entry["prefix"]))
        for name, entry in entries.items()
    }


def join_head_and_parts(truestep: str, head: dict[str, Any], parts: dict[str, bytes]) -> bytes:
    """Return the body of a head and the parts that follow it, each with its digest in the head."""
    listed = {name: [len(text), _text_digest(text)] for name, text in parts.items()}
    text = compact_json({**head, "parts": listed})
    start = f'{{"format":{FORMAT},"truestep":{json.dumps(truestep)},"head_bytes":{len(text)}'
    pieces = [start.encode(), f',"head_blake3":"{_text_digest(text)}","head":'.encode(), text]
    for name, part in parts.items():
        pieces += [_json_key_bytes(name), part]
    return b"".join([*pieces, b"}"])


def _json_key_bytes(name: str) -> bytes:
    return f',"{name}":'.encode()


def _text_digest(text: bytes | memoryview) -> str:
    return new_digest(NEWEST_DIGEST.name, text).hexdigest()


def parse_manifest(data: bytes, *, contents: bool = True) -> Manifest:
    """Read a manifest, trusting nothing in it; without `contents` what it says of tensors and state is left out.

    Raises DamagedError for what `manifest_bytes` can't have written, NewerFormatError for a newer format.
    """
    body = verified_manifest_body(data)
    try:
        with pause_garbage_collector():
            if (start := _START.match(body)) is not None:
                return _parse_current_manifest(body, start, contents=contents)
            return _parse_older_manifest(_parse_strict_json(body))
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise DamagedCheckpointError(f"{MANIFEST_NAME}: {type(error).__name__}: {error}") from error


def _parse_strict_json(text: bytes) -> Any:
    # not from bytes: that guesses among encodings
    return json.loads(text.decode(), parse_constant=_refuse_json_constant)


def _refuse_json_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _parse_current_manifest(body: bytes, start: re.Match[bytes], *, contents: bool) -> Manifest:
    head = parse_manifest_head(body, start)
    summary, files = _parse_summary(head), decode_manifest_files(head["files"])
    if not contents:
        return Manifest(summary=summary, files=files, tensors={}, state=None)
    parts = dict(_verified_parts(body, start, head))
    tensors, rows = decode_tensor_columns(parts, decode_file_row_counts(head["files"]))
    return Manifest(summary=summary, files=files, tensors=tensors, state=parts["state"], rows=rows)


def parse_manifest_head(body: bytes, start: re.Match[bytes] | None = None) -> dict[str, Any]:
    """Return the head, of which the first bytes of a body are enough; raises ValueError where it is not what was written."""
    start = start or _START.match(body)
    if start is None:
        raise ValueError(f"it does not begin as a manifest of format {FORMAT}")
    text = body[start.end() : start.end() + int(start[2])]
    if _text_digest(text) != start[3].decode():
        raise ValueError("its head does not have the checksum that it names")
    head: dict[str, Any] = _parse_strict_json(text)
    return {**head, "truestep": json.loads(start[1])}


def _verified_parts(body: bytes, start: re.Match[bytes], head: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the parts that follow the head, each checked by its own digest."""
    at = start.end() + int(start[2])
    if tuple(head["parts"]) != PARTS:
        raise ValueError(f"its parts are {', '.join(head['parts'])}, not {', '.join(PARTS)}")
    for name, (size, digest) in head["parts"].items():
        before = _json_key_bytes(name)
        begin, end = at + len(before), at + len(before) + check_size_number(size)
        text = body[begin:end]
        if body[at:begin] != before or len(text) != size or _text_digest(text) != digest:
            raise ValueError(f"its part {name!r} does not have the checksum in the head")
        yield name, _parse_strict_json(text)
        at = end
    if body[at:] != b"}":
        raise ValueError("more follows than the head says")


def _parse_older_manifest(body: dict[str, Any]) -> Manifest:
    found = body["format"]
    if type(found) is not int or found < 1:
        raise ValueError(f"the format is {found!r}")
    if found > FORMAT:
        # Its checksum was right, so that this is another version's file and no damaged one.
        raise NewerCheckpointError(
            f"it is sound, but in format {found}, written by truestep {body.get('truestep')}. This is "
            f"truestep "
            f"{truestep_version()}, which reads formats up to {FORMAT}: install the newer version to use it"
        )
    if found == FORMAT:
        raise ValueError(f"it does not begin as a manifest of format {FORMAT}")
    files = parse_older_files(body["files"])
    tensors = parse_older_tensors(body["tensors"], files)
    state = body["state"] if found > 1 else upgrade_older_state(body["state"])
    return Manifest(summary=_parse_summary(body), files=files, tensors=tensors, state=state, format=found)


def _parse_summary(body: dict[str, Any]) -> CheckpointSummary:
    return CheckpointSummary(
        **{name: _value_of_type(body, name, kind) for name, kind in _SUMMARY_TYPES.items()}
    )


def _value_of_type(body: dict[str, Any], name: str, kind: type) -> Any:
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
    parts = _dict_children(state)
    learners = _dict_children(parts.get("learners"))
    if not {"cursor", "random", "logbook"} <= parts.keys():
        return state  # a store without a run
    for name in _OF_A_RUN:
        if name in parts:
            parts[name] = _translate_older_tags(parts[name])
    for learner in map(_dict_children, learners.values()):
        for name in _OF_A_LEARNER:
            if name in learner:
                learner[name] = _translate_older_tags(learner[name])
    return state


def _dict_children(node: Any) -> dict[str, Any]:
    children = node.get("dict") if isinstance(node, dict) else None
    return children if isinstance(children, dict) else {}


def _translate_older_tags(node: Any) -> Any:
    if isinstance(node, list):
        return [_translate_older_tags(item) for item in node]
    if not isinstance(node, dict) or "dict" not in node:
        return node
    children = node["dict"]
    if len(children) == 1 and (tag := _TAGS.get(next(iter(children)))):
        (content,) = children.values()
        return {tag: [_translate_older_tags(item) for item in content]}
    return {"dict": {key: _translate_older_tags(child) for key, child in children.items()}}


def parse_older_files(entries: dict[str, Any]) -> dict[str, ManifestFile]:
    """Read the entries of files, trusting nothing in them; raises KeyError, TypeError or ValueError."""
    return {
        checked_file_name(name): ManifestFile(
            check_size_number(entry["bytes"]), checked_hexdigest(entry["sha256"])
        )
        for name, entry in entries.items()
    }


def parse_older_tensors(entries: dict[str, Any], files: dict[str, ManifestFile]) -> dict[str, ManifestTensor]:
    """Read the entries of tensors, which lie in these files, in the same way."""
    return {name: _parse_older_tensor(entry, files) for name, entry in entries.items()}


def _parse_older_tensor(entry: dict[str, Any], files: dict[str, ManifestFile]) -> ManifestTensor:
    if entry["dtype"] not in DTYPES:
        raise ValueError(f"the dtype {entry['dtype']!r} is unknown")
    shape = check_size_numbers(entry["shape"])
    check_tensor_size(shape, DTYPES[entry["dtype"]].element_bytes)
    stride = check_size_numbers(entry["stride"]) if "stride" in entry else None
    shards = tuple(_parse_older_shard(shard, shape, files) for shard in entry["shards"])
    return ManifestTensor(dtype=entry["dtype"], shape=shape, stride=stride, shards=shards)


def _parse_older_shard(
    entry: dict[str, Any], shape: tuple[int, ...], files: dict[str, ManifestFile]
) -> TensorShard:
    if type(entry["key"]) is not str:
        raise ValueError(f"{entry['key']!r} is no name in a file")
    shard = TensorShard(
        file=entry["file"],
        key=entry["key"],
        begin=check_size_number(entry["begin"]),
        end=check_size_number(entry["end"]),
        offset=check_size_numbers(entry["offset"]),
        shape=check_size_numbers(entry["shape"]),
    )
    if shard.file not in files:
        raise ValueError(f"a tensor lies in {shard.file!r}, which is not among the files")
    check_shard(shard, shape)
    return shard
