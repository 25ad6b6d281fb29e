# SPDX-License-Identifier: Apache-2.0
"""The codec of states: a tree of dicts, lists and tuples whose leaves are tensors or plain values, as JSON and back.

What JSON has itself (null, booleans, integers, finite numbers, strings, lists) stands for itself. Everything
else is an object of one tag: `{"dict": {...}}`, `{"items": [[key, value], ...]}` (a dict whose keys are not all
strings), `{"counter": [[key, value], ...]}`, `{"tuple": [...]}`, `{"float": "nan"}` and `{"tensor": "its/name", ...}`.
So a state's own keys are never mistaken for markup, and what comes back has the types that went in.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from truestep.core.errors import CheckpointError, names_hint
from truestep.core.text_formatting import a_type

MAX_DEPTH = 100  # a level takes two or three Python frames, of the 1,000 that a program has by default
MAX_INTEGER_BITS = 8192  # some 2,500 digits; beyond 4,300 Python refuses to read an integer back
_NONFINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
ADVICE = {
    "ndarray": "torch.from_numpy(value)",
    "generator": "list(value)",
    "set": "sorted(value)",
    "frozenset": "sorted(value)",
    "bytes": "value.hex(), or torch.frombuffer(bytearray(value), dtype=torch.uint8)",
    "Generator": "value.get_state()",
    "device": "str(value)",
    "dtype": "str(value)",
}


@dataclass(frozen=True, kw_only=True)
class SavedTensorPiece:
    """What this process has of a tensor that is divided among several: a box of it, and where that lies in the whole."""

    tensor: Any
    whole: tuple[int, ...]
    offset: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class SavedTensorLeaf:
    """A tensor of a state, its name, and the JSON node that stands for it; of a divided one the piece that is here."""

    name: str
    tensor: Any
    node: dict[str, Any]
    piece: SavedTensorPiece | None = None


@dataclass(frozen=True)
class EncodedState:
    """A state as a JSON tree, and its tensors in the order met."""

    tree: Any
    leaves: list[SavedTensorLeaf]


def encode_state(state: Any) -> EncodedState:
    """Split a state into a JSON tree, private to the caller, and its tensors and pieces of tensors (not copied).

    Raises CheckpointError with the path of whatever is neither a tensor nor a plain value.
    """
    from torch import Tensor

    encoder = _StateEncoder(Tensor)
    return EncodedState(encoder.node(state, ()), encoder.leaves)


@dataclass
class _StateEncoder:
    tensor_type: type
    leaves: list[SavedTensorLeaf] = field(default_factory=list)
    names: set[str] = field(default_factory=set)

    def node(self, value: Any, path: tuple[Any, ...]) -> Any:
        if value is None or type(value) in (bool, str):
            return value
        if isinstance(value, self.tensor_type):
            return self._encode_tensor(value, path)
        if isinstance(value, SavedTensorPiece):
            return self._encode_tensor(value.tensor, path, piece=value)
        if len(path) > MAX_DEPTH:
            raise CheckpointError(
                f"The state at {state_path_text(path[:5])}... is nested more than {MAX_DEPTH} deep, or holds "
                f"itself, "
                "so it can't be saved. Save what identifies it instead."
            )
        if isinstance(value, dict):
            return self._encode_dict(value, path)
        if type(value) is list:
            return self._encode_items(value, path)
        if isinstance(value, tuple):
            return {"tuple": self._encode_items(value, path)}
        return encode_saved_value(value, path)

    def _encode_items(self, values: list[Any] | tuple[Any, ...], path: tuple[Any, ...]) -> list[Any]:
        if are_saved_integers(values) and len(path) < MAX_DEPTH:
            return list(values)
        return [self.node(item, (*path, index)) for index, item in enumerate(values)]

    def _encode_dict(self, value: dict[Any, Any], path: tuple[Any, ...]) -> dict[str, Any]:
        # The exact type: a key of a subclass of str (an Enum, say) would come back as another key.
        if not isinstance(value, Counter) and all(type(key) is str for key in value):
            return {"dict": {key: self.node(item, (*path, key)) for key, item in value.items()}}
        # As pairs, not as an object: JSON's keys are strings, and 1 would come back as "1".
        pairs = [[_encode_dict_key(key, path), self.node(item, (*path, key))] for key, item in value.items()]
        return {"counter" if isinstance(value, Counter) else "items": pairs}

    def _encode_tensor(
        self, tensor: Any, path: tuple[Any, ...], piece: SavedTensorPiece | None = None
    ) -> dict[str, Any]:
        name = unused_saved_name(saved_tensor_name(path), self.names)
        self.names.add(name)
        node: dict[str, Any] = {"tensor": name}
        self.leaves.append(SavedTensorLeaf(name=name, tensor=tensor, node=node, piece=piece))
        return node


def _encode_dict_key(key: Any, path: tuple[Any, ...], depth: int = 0) -> Any:
    if key is None or type(key) in (bool, int, float, str):
        return encode_saved_value(key, path)
    if type(key) is tuple and len(path) + depth < MAX_DEPTH:
        return {"tuple": [_encode_dict_key(part, path, depth + 1) for part in key]}
    raise CheckpointError(
        f"The key {key!r} of the state at {state_path_text(path)} is {a_type(key)}. Keys of a state are None, bool, "
        f"int, float, str and tuples of these, so that they come back equal; write {str(key)!r}."
    )


def are_saved_integers(values: list[Any] | tuple[Any, ...]) -> bool:
    """Whether all are integers, which are their own nodes: the state of Python's generator is 625 of them."""
    return set(map(type, values)) == {int} and max(map(int.bit_length, values)) <= MAX_INTEGER_BITS


def encode_saved_value(value: Any, path: tuple[Any, ...]) -> Any:
    """Return the node of a value that is neither a tensor nor has parts; raises CheckpointError for any other."""
    # subclasses of float and str (numpy's float64 and str_) are those values; an Enum is more than its value
    if isinstance(value, float) and not isinstance(value, Enum):
        return float(value) if math.isfinite(value) else {"float": str(float(value))}
    if type(value) is int:
        if value.bit_length() <= MAX_INTEGER_BITS:
            return value
        raise CheckpointError(
            f"The integer at {state_path_text(path)} has {value.bit_length()} bits; save it as hex(value), a "
            f"string."
        )
    if isinstance(value, str) and not isinstance(value, Enum):
        return str(value)
    if value is None or type(value) is bool:
        return value
    if hasattr(value, "dtype") and getattr(value, "ndim", None) == 0:  # a scalar of NumPy's
        return encode_saved_value(value.item(), path)
    kind = type(value).__name__
    advice = ADVICE.get(kind) or "its state_dict()"
    raise CheckpointError(
        f"The state at {state_path_text(path)} is a {type(value).__module__}.{kind}. Only tensors, None, bool, "
        f"int, "
        f"float and str in dicts, lists and tuples can be saved, because loading anything else would mean "
        f"running "
        f"code from a file. Save {advice} instead."
    )


def state_path_text(path: tuple[Any, ...]) -> str:
    """Write a path the way Python would reach it: state['optimizer'][0]."""
    return "state" + "".join(f"[{key!r}]" for key in path)


def saved_tensor_name(path: tuple[Any, ...]) -> str:
    """Join a path by slashes; slashes inside of keys are escaped as JSON pointers do."""
    return "/".join(str(key).replace("~", "~0").replace("/", "~1") for key in path)


def unused_saved_name(name: str, taken: Collection[str]) -> str:
    """Return the name, with a number at its end if it is taken: {0: a, "0": b} has two tensors named 0."""
    if name not in taken and name != "__metadata__":
        return name
    return next(each for number in range(2, len(taken) + 3) if (each := f"{name}~{number}") not in taken)


def decode_state(node: Any, tensor: Callable[[dict[str, Any]], Any], depth: int = 0) -> Any:
    """Rebuild a state; `tensor` turns the node of a tensor into it.

    Raises ValueError for a node that no `encode_state` can have written.
    """
    if node is None or isinstance(node, bool | int | float | str):
        return node
    if depth > MAX_DEPTH + 1:
        raise ValueError(f"the state is nested more than {MAX_DEPTH} deep")
    depth += 1
    if isinstance(node, list):
        return [decode_state(item, tensor, depth) for item in node]
    if "tensor" in node:
        return tensor(node)
    return _decode_tagged_node(node, tensor, depth)


def _decode_tagged_node(node: dict[str, Any], tensor: Callable[[dict[str, Any]], Any], depth: int) -> Any:
    if len(node) != 1:
        raise ValueError(f"a node of the state has the tags {sorted(node)}; there must be one")
    ((tag, content),) = node.items()
    match tag, content:
        case "dict", dict():
            return {key: decode_state(item, tensor, depth) for key, item in content.items()}
        case "items", list():
            return dict(_decode_key_value_pairs(content, tensor, depth))
        case "counter", list():
            return Counter(dict(_decode_key_value_pairs(content, tensor, depth)))
        case "tuple", list():
            return tuple(decode_state(item, tensor, depth) for item in content)
        case "float", str() if content in _NONFINITE:
            return _NONFINITE[content]
    raise ValueError(f"a node of the state has the unknown tag {tag!r}")


def _decode_key_value_pairs(
    pairs: list[Any], tensor: Callable[[dict[str, Any]], Any], depth: int
) -> Iterator[tuple[Any, Any]]:
    for key, item in pairs:
        yield decode_state(key, _refuse_tensor_as_key, depth), decode_state(item, tensor, depth)


def _refuse_tensor_as_key(node: dict[str, Any]) -> Any:
    raise ValueError(f"a key of the state is the tensor {node['tensor']!r}")


def state_subtree(node: Any, path: tuple[Any, ...]) -> Any:
    """Return the node at a path; raises CheckpointError with what there is instead."""
    for depth, key in enumerate(path):
        children = state_children(node) or {}
        if key not in children:
            there = names_hint(str(key), map(str, children)) if children else "It has no parts."
            raise CheckpointError(f"There is no {key!r} in {state_path_text(path[:depth])}. {there}")
        node = children[key]
    return node


def state_children(node: Any) -> dict[Any, Any] | None:
    """Return the nodes right under one, by key or index; None for a leaf."""
    if isinstance(node, list):
        return dict(enumerate(node))
    match node:
        case {"dict": children}:
            return dict(children)
        case {"items": pairs} | {"counter": pairs}:
            return {decode_state(key, _refuse_tensor_as_key): child for key, child in pairs}
        case {"tuple": items}:
            return dict(enumerate(items))
    return None


def saved_tensor_nodes(node: Any) -> list[dict[str, Any]]:
    """Return the nodes of a tree that stand for tensors, in order."""
    found: list[dict[str, Any]] = []
    decode_state(node, found.append)
    return found
