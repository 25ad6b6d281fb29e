# SPDX-License-Identifier: Apache-2.0
"""A state encoded again: where it is built as before, its tree is made of the nodes of the last time.

A run saves the same tree again and again, with other values. Names, paths and nodes of tensors need not be made anew
for that: the state is walked beside its last tree, and only plain values that changed make new nodes.
"""

from operator import is_
from typing import Any, Protocol

import torch
from torch import Tensor

from truestep.checkpoints.tree import SavedTensorPiece, encode_saved_value, state_children


class SavedStateChangedError(Exception):
    """The state is no longer built as it was."""


class _Part(Protocol):
    def node(self, value: Any, tensors: list[Tensor]) -> Any: ...


class _TensorPart:
    def __init__(self, node: Any) -> None:
        self._node = node

    def node(self, value: Any, tensors: list[Tensor]) -> Any:
        # Subclasses are refused in words by `encode`, so the exact types alone may pass.
        if type(value) is not Tensor and type(value) is not torch.nn.Parameter:
            raise SavedStateChangedError
        tensors.append(value)
        return self._node


class _PiecePart:
    def __init__(self, value: SavedTensorPiece, node: Any) -> None:
        self._place, self._node = (value.whole, value.offset), node

    def node(self, value: Any, tensors: list[Tensor]) -> Any:
        if not isinstance(value, SavedTensorPiece) or (value.whole, value.offset) != self._place:
            raise SavedStateChangedError
        tensors.append(value.tensor)
        return self._node


class _PlainPart:
    def __init__(self, value: Any, node: Any, path: tuple[Any, ...]) -> None:
        self._value, self._node, self._path = value, node, path

    def node(self, value: Any, tensors: list[Tensor]) -> Any:
        # Identity, not equality: 1 is equal to True and to 1.0, which have other nodes.
        if value is self._value:
            return self._node
        if isinstance(value, dict | list | tuple | Tensor | SavedTensorPiece):
            raise SavedStateChangedError
        self._value, self._node = value, encode_saved_value(value, self._path)
        return self._node


class _DictPart:
    def __init__(self, value: dict[Any, Any], node: dict[str, Any], path: tuple[Any, ...]) -> None:
        ((self._tag, self._content),) = node.items()
        self._type, self._keys, self._node = type(value), list(value), node
        nodes = self._content.values() if self._tag == "dict" else [child for _, child in self._content]
        self._nodes, self._key_types = list(nodes), list(map(type, value))
        self._parts = [
            part_of_saved_state(item, child, (*path, key))
            for (key, item), child in zip(value.items(), self._nodes, strict=True)
        ]

    def node(self, value: Any, tensors: list[Tensor]) -> Any:
        # The order of keys counts: it is the order of the tensors.
        if type(value) is not self._type or list(value) != self._keys:
            raise SavedStateChangedError
        if self._tag != "dict" and list(map(type, value)) != self._key_types:  # True is equal to 1
            raise SavedStateChangedError
        nodes = [part.node(item, tensors) for part, item in zip(self._parts, value.values(), strict=True)]
        if not all(map(is_, nodes, self._nodes)):
            self._nodes = nodes
            if self._tag == "dict":
                self._node = {"dict": dict(zip(self._keys, nodes, strict=True))}
            else:
                keys = [key for key, _ in self._content]
                self._node = {self._tag: [list(pair) for pair in zip(keys, nodes, strict=True)]}
        return self._node


class _ListPart:
    def __init__(self, value: Any, node: Any, path: tuple[Any, ...]) -> None:
        self._type, self._node = type(value), node
        self._nodes = list(node) if isinstance(node, list) else list(node["tuple"])
        self._parts = [
            part_of_saved_state(item, child, (*path, index))
            for index, (item, child) in enumerate(zip(value, self._nodes, strict=True))
        ]

    def node(self, value: Any, tensors: list[Tensor]) -> Any:
        if type(value) is not self._type or len(value) != len(self._parts):
            raise SavedStateChangedError
        nodes = [part.node(item, tensors) for part, item in zip(self._parts, value, strict=True)]
        if not all(map(is_, nodes, self._nodes)):
            self._nodes = nodes
            self._node = nodes if self._type is list else {"tuple": nodes}
        return self._node


def part_of_saved_state(value: Any, node: Any, path: tuple[Any, ...] = ()) -> _Part:
    """Return what encodes values like `value`, which was encoded as `node`, again."""
    if isinstance(value, Tensor):
        return _TensorPart(node)
    if isinstance(value, SavedTensorPiece):
        return _PiecePart(value, node)
    if state_children(node) is None:
        return _PlainPart(value, node, path)
    return _DictPart(value, node, path) if isinstance(value, dict) else _ListPart(value, node, path)
