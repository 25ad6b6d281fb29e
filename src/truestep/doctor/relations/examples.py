# SPDX-License-Identifier: Apache-2.0
"""The examples of a batch of any nesting, and batches that are made of them in another way.

Nothing of the batch is written to: every tensor of an altered batch is a copy. Where the examples lie must be provable from
the batch, else `find_examples` says why it is not.
"""

import copy
import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import islice
from pathlib import PurePath
from typing import Any

import numpy as np
import torch
from torch import Tensor

from truestep.core.nested_structures import batch_children, rebuild_batch

_NUMBERS = (int, float, complex, bool, np.generic)
_PLAIN = (*_NUMBERS, str, bytes, type(None), Enum, PurePath, torch.dtype, torch.device)
_ORDER_SEED = 20
_MOST_ABSENT = 6
_MOST_COMPARED = 17


class UnclearExamplesError(ValueError):
    """It can't be told from a batch where its examples lie; the message says why."""


@dataclasses.dataclass(frozen=True, eq=False)
class Examples:
    """A batch with what is known of its leaves: how many examples it holds, and along which dimension of each leaf.

    Attributes:
        batch: the batch as it was given.
        count: how many examples it holds.
        leaves: each tensor, array, list of one value an example, or plain value, by what one writes to reach it.
        axes: the dimension of each leaf that holds the examples; None for what all of them share.
    """

    batch: Any
    count: int
    leaves: Mapping[str, Any]
    axes: Mapping[str, int | None]

    @property
    def items(self) -> tuple[str, ...]:
        """The leaves that hold the examples, by name."""
        return tuple(name for name, axis in self.axes.items() if axis is not None)

    def varies(self, item: str) -> bool:
        """Whether the examples differ in a leaf."""
        rows = [self._take_rows(item, [row]) for row in range(self.count)]
        return any(not _are_equal(rows[0], other) for other in rows[1:])

    def like(self, batch: Any) -> "Examples":
        """Return another batch of the same form and as many examples, with what is known of this one's leaves."""
        return dataclasses.replace(self, batch=batch, leaves=dict(_named_leaves(batch, "", self.count)))

    def take(self, rows: Sequence[int], item: str | None = None) -> Any:
        """Return the batch of these examples, which may come in any order and several times; of one leaf alone if it is named."""
        return self.with_leaves(lambda name: self._take_rows(name, rows if item in (None, name) else None))

    def with_leaves(self, leaf: Callable[[str], Any]) -> Any:
        """Return the batch with each leaf that a function gives for its name."""
        return _rebuild_with_leaves(self.batch, "", leaf, set(self.leaves))

    def copy_of(self, name: str) -> Any:
        """Return a copy of a leaf."""
        return self._take_rows(name, None)

    def fresh(self) -> Any:
        """Return the batch as it is, its tensors copied."""
        return self.take(range(self.count))

    def order(self) -> list[int]:
        """Return the examples in an order in which as few as can be stay where they are: the same for each number of examples."""
        drawn = torch.Generator().manual_seed(_ORDER_SEED)
        mixed = torch.randperm(self.count, generator=drawn).tolist()
        # along one cycle through all of them none keeps its place
        following = dict(zip(mixed, mixed[1:] + mixed[:1], strict=True))
        return [following[row] for row in range(self.count)]

    def permuted(self) -> Any:
        """Return the batch with its examples in another order."""
        return self.take(self.order())

    def halves(self) -> tuple[Any, Any]:
        """Return the batch with its first half in the place of its second, and the other way; an odd last example stays."""
        half = self.count // 2
        first, rest = list(range(half)), list(range(2 * half, self.count))
        second = list(range(half, 2 * half))
        return self.take([*first, *first, *rest]), self.take([*second, *second, *rest])

    def twice(self) -> Any:
        """Return the batch with every example twice."""
        return self.take([*range(self.count), *range(self.count)])

    def one(self, row: int = 0) -> Any:
        """Return the batch of one example."""
        return self.take([row])

    def with_changed(self, row: int) -> Any:
        """Return the batch with another example in the place of one: that which differs in most items, of labels as well."""
        rows = list(range(self.count))
        others = [(row + step) % self.count for step in range(1, min(self.count, _MOST_COMPARED))]
        rows[row] = max(others, key=lambda other: self._num_differing_items(row, other), default=row)
        return self.take(rows)

    def _num_differing_items(self, row: int, other: int) -> int:
        return sum(
            not _are_equal(self._take_rows(each, [row]), self._take_rows(each, [other]))
            for each in self.items
        )

    def constant(self, item: str, row: int = 0) -> Any:
        """Return the batch with one example's value of one leaf for all examples."""
        return self.take([row] * self.count, item)

    def absent_numbers(self, item: str) -> list[int]:
        """Return whole numbers near those of a leaf that none of its examples has: of classes, those that are missing here."""
        leaf = self.leaves[item]
        if isinstance(leaf, Tensor):
            is_whole = not (leaf.is_floating_point() or leaf.is_complex() or leaf.dtype == torch.bool)
        else:
            is_whole = isinstance(leaf, np.ndarray) and leaf.dtype.kind in "iu"
        present = set(leaf.reshape(-1).tolist()) if is_whole else set()
        if not present:
            return []
        absent = (each for each in range(min(0, *present), max(present) + 2) if each not in present)
        return list(islice(absent, _MOST_ABSENT))

    def filled(self, item: str, value: int) -> Any:
        """Return the batch with one whole number in the place of all numbers of one leaf."""

        def fill_leaf(name: str) -> Any:
            made = self.copy_of(name)
            if name == item:
                made[...] = value
            return made

        return self.with_leaves(fill_leaf)

    def with_exchanged_item(self, item: str) -> Any:
        """Return the batch with the values of one leaf given to other examples."""
        return self.take(self.order(), item)

    def _take_rows(self, name: str, rows: Sequence[int] | None) -> Any:
        leaf, axis = self.leaves[name], self.axes[name]
        if axis is None or rows is None:
            return _copy_leaf(leaf)
        if isinstance(leaf, Tensor):
            index = torch.tensor(rows, dtype=torch.long, device=leaf.device)
            return leaf.detach().index_select(axis, index).requires_grad_(leaf.requires_grad)
        if isinstance(leaf, np.ndarray):
            return np.take(leaf, rows, axis)
        members = [_copy_nested(leaf[row]) for row in rows]
        return _list_like(leaf, members)


def find_examples(
    batch: Any, dim: int = 0, *, in_columns: bool = False, loaded: int | None = None
) -> Examples:
    """Return where the examples of a batch lie.

    They lie along `dim` of the tensors, along the last dimension of those that lack it, and along lists of one value an example.
    A number or a text is shared, and so is a tensor of fewer rows than there are examples, if two others agree on their number.

    Args:
        batch: any nesting of tensors and arrays in lists, tuples, dicts, data classes and what is like these.
        dim: the dimension of the tensors that holds the examples: 1 for sequences that come first.
        in_columns: whether the lists are known to be columns, as PyTorch's default collation makes them.
        loaded: so many examples a loader takes for a batch, which tells two readings apart.

    Raises:
        UnclearExamplesError: it can't be told.
    """
    outside = _sizes_by_name(batch, dim, enter=in_columns)
    if outside or in_columns:
        return _examples_of_count(batch, dim, _most_common_size(outside, dim))
    columns = _examples_or_error(
        batch, dim, lambda: _most_common_size(_sizes_by_name(batch, dim, enter=True), dim)
    )
    rows = _examples_or_error(batch, dim, lambda: _agreed_length(batch))
    if isinstance(columns, Examples) and isinstance(rows, Examples) and columns.count != rows.count:
        if loaded in (columns.count, rows.count):
            return columns if loaded == columns.count else rows
        raise UnclearExamplesError(
            f"it can be read in two ways: as {rows.count} examples, or as {rows.count} columns of {columns.count} examples"
        )
    found = columns if isinstance(columns, Examples) else rows
    if isinstance(found, Examples):
        return found
    raise columns if isinstance(columns, UnclearExamplesError) else found


def _examples_or_error(batch: Any, dim: int, count: Callable[[], int]) -> Examples | UnclearExamplesError:
    try:
        return _examples_of_count(batch, dim, count())
    except UnclearExamplesError as error:
        return error


def _examples_of_count(batch: Any, dim: int, count: int) -> Examples:
    """Return the leaves of a batch of so many examples."""
    leaves = dict(_named_leaves(batch, "", count))
    for name, leaf in leaves.items():
        _check_leaf(name, leaf)
    sizes = {
        name: size for name, leaf in leaves.items() if (size := _example_dim_size(leaf, dim)) is not None
    }
    if any(size > count for size in sizes.values()):
        raise UnclearExamplesError(_disagreement_message(sizes, dim))
    return Examples(
        batch, count, leaves, {name: _example_axis(leaf, dim, count) for name, leaf in leaves.items()}
    )


def _sizes_by_name(batch: Any, dim: int, *, enter: bool, name: str = "") -> dict[str, int]:
    """Return the sizes along a dimension of all tensors; lists that may hold one member an example are entered if asked."""
    if not enter and _may_be_rows(batch):
        return {}
    parts = _batch_parts(batch)
    if parts is None:
        size = _example_dim_size(batch, dim)
        return {} if size is None else {name: size}
    found: dict[str, int] = {}
    for step, part in parts:
        found |= _sizes_by_name(part, dim, enter=enter, name=name + step)
    return found


def _most_common_size(sizes: Mapping[str, int], dim: int) -> int:
    """Return the number of examples on which most tensors agree."""
    if not sizes:
        raise UnclearExamplesError("it holds no tensor with a dimension")
    (count, votes), *others = Counter(sizes.values()).most_common(2)
    if others and others[0][1] == votes:
        raise UnclearExamplesError(_disagreement_message(sizes, dim))
    return count


def _disagreement_message(sizes: Mapping[str, int], dim: int) -> str:
    said = ", ".join(f"{name or 'the tensor'} {size}" for name, size in sizes.items())
    return f"its tensors do not agree on the number of examples along dimension {dim}: {said}"


def _agreed_length(batch: Any) -> int:
    """Return the length of the lists that may hold one member an example."""
    lengths = set(_list_lengths(batch))
    if len(lengths) != 1:
        raise UnclearExamplesError("its lists do not agree on the number of examples")
    return lengths.pop()


def _list_lengths(batch: Any) -> Iterator[int]:
    if _may_be_rows(batch):
        yield len(batch)
        return
    for _, part in _batch_parts(batch) or ():
        yield from _list_lengths(part)


def _named_leaves(batch: Any, name: str, count: int | None) -> Iterator[tuple[str, Any]]:
    parts = None if _is_list_of_values(batch, count) else _batch_parts(batch)
    if parts is None:
        yield name, batch
        return
    for step, part in parts:
        yield from _named_leaves(part, name + step, count)


def _is_list_of_values(value: Any, count: int | None) -> bool:
    """Whether a list has one member an example: plain values, or members that are known to be so many."""
    if not isinstance(value, (list, tuple)) or hasattr(value, "_fields") or not value:
        return False
    if all(isinstance(each, _PLAIN) for each in value):
        return True
    if count is None or len(value) != count or not _may_be_rows(value):
        return False
    sizes = [_example_dim_size(leaf, 0) for each in value for _, leaf in _named_leaves(each, "", None)]
    return not all(size in (None, count) for size in sizes) or all(size is None for size in sizes)


def _batch_parts(batch: Any) -> list[tuple[str, Any]] | None:
    if isinstance(batch, (Tensor, np.ndarray)):
        return None
    if _is_tensor_dict(batch):
        return [(f"[{key!r}]", value) for key, value in batch.items()]
    parts = batch_children(batch)
    return parts if parts else None


def _is_tensor_dict(batch: Any) -> bool:
    """Whether it is a mapping that is indexed by rows, as those of tensordict: it says the size of its batch."""
    return not isinstance(batch, type) and all(
        hasattr(batch, name) for name in ("items", "keys", "batch_size")
    )


def _rebuild_with_leaves(batch: Any, name: str, leaf: Callable[[str], Any], names: set[str]) -> Any:
    if name in names:
        return leaf(name)
    parts = _batch_parts(batch)
    if parts is None:
        return batch
    made = [_rebuild_with_leaves(part, name + step, leaf, names) for step, part in parts]
    if not _is_tensor_dict(batch):
        return rebuild_batch(batch, made)
    fields = {key: value for (key, _), value in zip(batch.items(), made, strict=True)}
    rows = {each.shape[0] for each in made if isinstance(each, Tensor)}
    size = [*rows, *tuple(batch.batch_size)[1:]] if len(rows) == 1 and batch.batch_size else []
    return type(batch)(fields, batch_size=size)


def _example_dim_size(leaf: Any, dim: int) -> int | None:
    """Return the size of the dimension in which a tensor or array may hold the examples."""
    if not isinstance(leaf, (Tensor, np.ndarray)) or not leaf.ndim:
        return None
    return int(leaf.shape[min(dim, leaf.ndim - 1)])


def _check_leaf(name: str, leaf: Any) -> None:
    if isinstance(leaf, Tensor):
        if leaf.layout is not torch.strided or leaf.is_nested:
            raise UnclearExamplesError(f"{name or 'it'} is a sparse or nested tensor")
    elif not isinstance(leaf, (*_PLAIN, np.ndarray, list, tuple, dict)):
        raise UnclearExamplesError(f"{name or 'it'} is of {type(leaf).__name__}, which can't be taken apart")


def _example_axis(leaf: Any, dim: int, count: int) -> int | None:
    if isinstance(leaf, (list, tuple)):
        return 0 if len(leaf) == count else None
    return min(dim, leaf.ndim - 1) if _example_dim_size(leaf, dim) == count else None


def _list_like(leaf: Any, members: list[Any]) -> Any:
    """Return a list of the same class, with its attributes, that holds other members."""
    if not isinstance(leaf, list):
        return type(leaf)(members)
    made = copy.copy(leaf)
    made[:] = members
    return made


def _may_be_rows(batch: Any) -> bool:
    """Whether a list's members can be examples: all of one form."""
    if not isinstance(batch, (list, tuple)) or hasattr(batch, "_fields") or len(batch) < 2:
        return False
    forms = [_leaf_signatures(each) for each in batch]
    return bool(forms[0]) and all(form == forms[0] for form in forms)


def _leaf_signatures(member: Any) -> list[tuple[str, Any, int]]:
    try:
        return [
            (name, type(leaf), getattr(leaf, "ndim", 0), str(getattr(leaf, "dtype", "")))  # type: ignore[misc]
            for name, leaf in _named_leaves(member, "", None)
        ]
    except ValueError:
        return []


def _copy_leaf(leaf: Any) -> Any:
    if isinstance(leaf, Tensor):
        return leaf.detach().clone().requires_grad_(leaf.requires_grad)
    return leaf.copy() if isinstance(leaf, (np.ndarray, list, dict)) else leaf


def _copy_nested(member: Any) -> Any:
    parts = _batch_parts(member)
    return (
        _copy_leaf(member)
        if parts is None
        else rebuild_batch(member, [_copy_nested(part) for _, part in parts])
    )


def _are_equal(first: Any, second: Any) -> bool:
    if isinstance(first, Tensor):
        return torch.equal(first, second)
    if isinstance(first, np.ndarray):
        return np.array_equal(first, second)
    pairs = zip(_named_leaves(first, "", None), _named_leaves(second, "", None), strict=False)
    return all(
        _are_equal(a, b) if isinstance(a, (Tensor, np.ndarray)) else bool(a == b) for (_, a), (_, b) in pairs
    )
