# SPDX-License-Identifier: Apache-2.0
"""Nested tuples, lists, dicts, data classes and namespaces, seen as their leaves."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from truestep.core.errors import BatchError


def is_data_class(value: Any) -> bool:
    """Whether it is an object of a data class, not the class itself."""
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def batch_children(batch: Any) -> list[tuple[str, Any]] | None:
    """Return the parts of `batch` with what one writes to reach each, or None for a leaf."""
    if isinstance(batch, Tensor | PackedSequence):  # a named tuple whose fields live on different devices
        return None
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return [(f".{name}", getattr(batch, name)) for name in batch._fields]
    if isinstance(batch, (tuple, list)):
        return [(f"[{number}]", part) for number, part in enumerate(batch)]
    if type(batch) is not dict and isinstance(batch, Mapping):
        _check_keys(batch)
    if isinstance(batch, Mapping):
        return [(f"[{key!r}]", part) for key, part in batch.items()]
    if isinstance(batch, SimpleNamespace):
        return [(f".{name}", part) for name, part in vars(batch).items()]
    if is_data_class(batch):
        return [
            (f".{field.name}", getattr(batch, field.name))
            for field in dataclasses.fields(batch)
            if field.init
        ]
    return None


def _check_keys(batch: Mapping[Any, Any]) -> None:
    """Raise a BatchError for a mapping that does not iterate over its keys."""
    key, first = next(iter(batch.keys()), None), next(iter(batch), None)
    if key is not None and type(first) is not type(key):
        kind = type(batch).__name__
        raise BatchError(
            f"This batch is a {kind}, which iterates over {type(first).__name__}s and not over its keys, so its parts can't be "
            f"told from its examples. Hand over a dict: run.data(dict(data.items())) for data in one {kind}, collate= for samples "
            "that become one."
        )


def rebuild_batch(batch: Any, parts: list[Any]) -> Any:
    """Return a structure like `batch` with other `parts`, in the order of `batch_children`."""
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*parts)
    if isinstance(batch, (tuple, list)):
        return _restore_container_type(batch, parts if isinstance(batch, list) else tuple(parts))
    if isinstance(batch, Mapping):
        return _restore_container_type(batch, dict(zip(batch, parts, strict=True)))
    if isinstance(batch, SimpleNamespace):
        return type(batch)(**dict(zip(vars(batch), parts, strict=True)))
    names = [field.name for field in dataclasses.fields(batch) if field.init]
    return dataclasses.replace(batch, **dict(zip(names, parts, strict=True)))


def _restore_container_type(batch: Any, plain: Any) -> Any:
    """Return `plain` as what `batch` is; as it is where that type's constructor wants something else."""
    if type(batch) is type(plain):
        return plain
    try:
        return type(batch)(plain)
    except TypeError:
        return plain


def batch_children_by_name(batch: Any) -> list[tuple[str, Any]] | None:
    """Return the parts of `batch`, those of a dict or namespace in the order of their names, or None for a leaf.

    Whoever makes one of a set of names has another order in each process, by its hash seed.
    """
    parts = batch_children(batch)
    has_names = parts is not None and isinstance(batch, Mapping | SimpleNamespace)
    return sorted(parts, key=lambda part: part[0]) if parts and has_names else parts


def batch_leaves(
    batch: Any, name: str = "", children: Callable[[Any], list[tuple[str, Any]] | None] = batch_children
) -> Iterator[tuple[str, Any]]:
    """Yield every leaf of `batch` with its name, as in `data['images'][0]`."""
    parts = children(batch)
    if parts is None:
        yield name, batch
        return
    for step, part in parts:
        yield from batch_leaves(part, name + step, children)


def batch_leaves_by_name(batch: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every leaf of `batch` with its name, in an order that is every process's."""
    return batch_leaves(batch, name, batch_children_by_name)


def map_batch_leaves(function: Callable[[Any], Any], batch: Any) -> Any:
    """Return `batch` with `function` applied to every leaf."""
    parts = batch_children(batch)
    if parts is None:
        return function(batch)
    return rebuild_batch(batch, [map_batch_leaves(function, part) for _, part in parts])


def fill_batch(batch: Any, values: Iterator[Any]) -> Any:
    """Return `batch` with its leaves replaced, in order, by `values`."""
    return map_batch_leaves(lambda _: next(values), batch)
