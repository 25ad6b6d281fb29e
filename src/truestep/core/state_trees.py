# SPDX-License-Identifier: Apache-2.0
"""States and results: dicts, lists and tuples within one another, seen as their leaves.

Batches, which may hold a user's own classes, are walked by `nested_structures.py` beside this.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

Path = tuple[Any, ...]
"""The keys and numbers that lead to a leaf."""


def tree_leaves(tree: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield each leaf of a tree and the path to it, in order; an empty container is a leaf."""
    if isinstance(tree, Mapping | list | tuple) and tree:
        for key, member in tree.items() if isinstance(tree, Mapping) else enumerate(tree):
            yield from tree_leaves(member, (*path, key))
    else:
        yield path, tree


def own_attributes(value: object) -> dict[str, Any]:
    """Return what an object holds by name; nothing is asked for that could run code of its own, such as a lazy `__getattr__`."""
    try:
        held = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return held if isinstance(held, dict) else {}


def map_tree_leaves(change: Callable[[Any], Any], tree: Any) -> Any:
    """Return dicts, lists and plain tuples like those of a tree, each leaf changed."""
    if isinstance(tree, Mapping):
        return {key: map_tree_leaves(change, member) for key, member in tree.items()}
    if type(tree) in (list, tuple):  # not a named tuple, which takes its fields one by one
        return type(tree)(map_tree_leaves(change, member) for member in tree)
    return change(tree)
