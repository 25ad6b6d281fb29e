# SPDX-License-Identifier: Apache-2.0
"""Nested tuples, lists, dicts and data classes, seen as their leaves."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch.nn.utils.rnn import PackedSequence


def is_data_class(value: Any) -> bool:
    """Whether it is an object of a data class, not the class itself."""
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def batch_children(tree: Any) -> list[tuple[str, Any]] | None:
    """Return the parts of `tree` with what one writes to reach each, or None for a leaf."""
    if isinstance(tree, PackedSequence):  # a named tuple whose fields live on different devices
        return None
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return [(f".{name}", getattr(tree, name)) for name in tree._fields]
    if isinstance(tree, (tuple, list)):
        return [(f"[{number}]", part) for number, part in enumerate(tree)]
    if isinstance(tree, Mapping):
        return [(f"[{key!r}]", part) for key, part in tree.items()]
    if is_data_class(tree):
        return [
            (f".{field.name}", getattr(tree, field.name)) for field in dataclasses.fields(tree) if field.init
        ]
    return None


def rebuild_batch(tree: Any, parts: list[Any]) -> Any:
    """Return a structure like `tree` with other `parts`, in the order of `batch_children`."""
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*parts)
    if isinstance(tree, (tuple, list)):
        return _like(tree, parts if isinstance(tree, list) else tuple(parts))
    if isinstance(tree, Mapping):
        return _like(tree, dict(zip(tree, parts, strict=True)))
    names = [field.name for field in dataclasses.fields(tree) if field.init]
    return dataclasses.replace(tree, **dict(zip(names, parts, strict=True)))


def _like(tree: Any, plain: Any) -> Any:
    """Return `plain` as what `tree` is; as it is where that type's constructor wants something else."""
    if type(tree) is type(plain):
        return plain
    try:
        return type(tree)(plain)
    except TypeError:
        return plain


def batch_leaves(tree: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every leaf of `tree` with its name, as in `data['images'][0]`."""
    parts = batch_children(tree)
    if parts is None:
        yield name, tree
        return
    for step, part in parts:
        yield from batch_leaves(part, name + step)


def map_batch_leaves(function: Callable[[Any], Any], tree: Any) -> Any:
    """Return `tree` with `function` applied to every leaf."""
    parts = batch_children(tree)
    if parts is None:
        return function(tree)
    return rebuild_batch(tree, [map_batch_leaves(function, part) for _, part in parts])


def fill_batch(tree: Any, values: Iterator[Any]) -> Any:
    """Return `tree` with its leaves replaced, in order, by `values`."""
    return map_batch_leaves(lambda _: next(values), tree)
