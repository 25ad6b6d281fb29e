# SPDX-License-Identifier: Apache-2.0
"""The formats before this one, which load for ever and are written no more. Imports no torch.

In formats 1 and 2 the tensors were a dict of dicts by their names, which stood in the state as well. In format 1 a run
spelt out itself what its checkpoints had no word for. A tuple was a dict `{"__tuple__": [...]}`, a dict whose keys are no
strings, or begin with two underscores, was `{"__dict__": [[key, value], ...]}`, and a Counter was
`{"__counter__": [[key, value], ...]}`. Only the parts that a run wrote so are read so: elsewhere such keys are a state's own.
"""

from typing import Any

from truestep.checkpoints.digests import checked_hexdigest
from truestep.checkpoints.dtypes import DTYPES, check_tensor_size
from truestep.checkpoints.manifest import (
    ManifestFile,
    ManifestTensor,
    TensorShard,
    check_shard,
    checked_count,
    checked_counts,
    checked_file_name,
)

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
