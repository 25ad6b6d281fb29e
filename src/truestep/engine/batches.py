# SPDX-License-Identifier: Apache-2.0
"""Batches of any structure: counting their examples, cutting them into parts, moving them to a device.

A batch is a tensor, an array, a packed sequence, or any nesting of tuples, named tuples, mappings, data classes,
namespaces and lists of these. Its examples lie along the leading dimension of every tensor. A list is a structure
when its members agree on their number of examples (as PyTorch's default collation makes them), and a
list of examples otherwise (ragged tensors, one dict of boxes an image, strings).
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from truestep.core import nested_structures
from truestep.core.device_specific import allows_non_blocking_copy
from truestep.core.errors import BatchError
from truestep.core.text_formatting import a_type

Batch = Any
NO_ROWS = (str, bytes, bool, int, float, complex, np.generic, type(None))


class BatchOrigin(NamedTuple):
    """What the one who made a batch knows of it: it decides where the batch itself can be read in several ways."""

    num_examples: int | None = None
    in_columns: bool = False
    """Whether its lists are structure, as PyTorch's default collation makes them, and not one member an example."""
    num_of_all_ranks: int | None = None
    """How many examples the whole batch has of which this is a rank's part; None where its order does not say so."""
    num_read: int | None = None
    """How many it had when this rank read it, before it took its rows; None where it reads its own alone."""
    shares: tuple[int, ...] | None = None
    """How many each rank has, where they read shares of their own and have told one another."""

    @property
    def num_examples_of_all_ranks(self) -> int | None:
        """Return how many examples the whole batch has; None where nothing says so before the loss is called."""
        if self.shares is not None:
            return sum(self.shares)
        return self.num_of_all_ranks if self.num_read is None else self.num_read


UNKNOWN = BatchOrigin()


class EmptyBatchError(BatchError):
    """A batch without examples."""


@dataclasses.dataclass(frozen=True)
class Split:
    """How to count and cut batches whose examples do not lie along the leading dimension.

    Attributes:
        count: the number of examples of a batch.
        take: the part of a batch that holds its examples `start` to `stop` (exclusive).
        dim: the dimension of a loss's outputs that the examples lie along.
    """

    count: Callable[[Batch], int]
    take: Callable[[Batch, int, int], Batch]
    dim: int = 0


def split_along(dim: int) -> Split:
    """Return a `Split` for batches whose tensors hold their examples along `dim` (1: time-major).

    Tensors that lack this dimension (labels or lengths, one an example) hold them along their last; 0-d ones are shared.
    """

    def example_axis(tensor: Tensor) -> int:
        return min(dim, tensor.ndim - 1)

    def narrow_batch(batch: Batch, start: int, stop: int) -> Batch:
        return map_batch_tensors(
            lambda t: t.narrow(example_axis(t), start, stop - start) if t.ndim else t, batch
        )

    def count_along_axis(batch: Batch) -> int:
        leaves = nested_structures.batch_leaves(batch, "batch")
        sizes = {path: t.shape[example_axis(t)] for path, t in leaves if isinstance(t, Tensor) and t.ndim}
        if not sizes:
            raise _uncountable_batch_error(batch)
        return _agreed_size(sizes, f"dimension {dim}")

    return Split(count_along_axis, narrow_batch, dim)


def count_with(split: Split, batch: Batch) -> int:
    """Return the number of examples that `split` counts; there must be one at least."""
    return _agreed_size({"split.count(batch)": split.count(batch)}, "examples")


def count_examples(batch: Batch, making: BatchOrigin = UNKNOWN) -> int:
    """Return the number of examples of `batch`, or raise a `BatchError` that lists the sizes found."""
    return _count_with_certainty(batch, making)[0]


def try_count_examples(batch: Batch, making: BatchOrigin = UNKNOWN) -> int | None:
    """Return the number of examples of `batch`, None where that is not clear; an empty batch still raises."""
    # most batches are a pair of tensors, and are counted without a walk
    if count := _count_pair_batch(batch):
        return count
    try:
        count, is_sure = _count_with_certainty(batch, making)
    # an empty batch is no question of how it is read
    except EmptyBatchError:
        raise
    except BatchError:
        return None
    return count if is_sure else None


def _count_with_certainty(batch: Batch, making: BatchOrigin) -> tuple[int, bool]:
    """Return the number of examples and whether that is sure.

    It is not where every tensor is in a list whose members agree in size: they can be the columns of a batch, or examples of
    like size. Then its maker's number decides, if it is what one of these readings says.
    """
    if count := _count_pair_batch(batch):
        return count, True
    outside = dict(_leaf_sizes(batch, "batch", enter_lists=False))
    # a tensor outside of all lists settles it: its rows are the examples
    if outside:
        return _agreed_size(outside, "leading dimension"), True
    columns, lengths = (
        dict(_leaf_sizes(batch, "batch", enter_lists=True)),
        dict(_list_lengths(batch, "batch")),
    )
    inside = dict(_leaf_sizes(batch, "batch", enter_lists=True, enter_records=True))
    readings = [set(sizes.values()) for sizes in (columns, inside, lengths)]
    if making.num_examples and {making.num_examples} in readings:
        return making.num_examples, True
    # sure only if every reading that agrees with itself says the same number
    possible = {size for sizes in readings if len(sizes) == 1 for size in sizes}
    found = columns if len(readings[0]) == 1 else lengths
    if not found:
        raise _uncountable_batch_error(batch)
    return _agreed_size(found, "leading dimension"), len(possible) == 1


def is_pair_batch(batch: Batch) -> bool:
    """Whether it is what most batches are: two tensors of as many examples, which need no walk."""
    return _count_pair_batch(batch) > 0


def _count_pair_batch(batch: Batch) -> int:
    """Return how many examples a batch of two tensors has; 0 where it is something else, or they differ."""
    # Exact types: a subclass of Tensor may count its rows in another way.
    if type(batch) is not tuple or len(batch) != 2 or not type(batch[0]) is type(batch[1]) is Tensor:
        return 0
    first, second = batch[0].shape, batch[1].shape
    return first[0] if first and second and first[0] == second[0] else 0


def cut_batch(
    batch: Batch, sizes: Sequence[int], split: Split | None = None, making: BatchOrigin = UNKNOWN
) -> Iterator[Batch]:
    """Yield consecutive parts of `batch` with the given numbers of examples."""
    total = count_with(split, batch) if split else count_examples(batch, making)
    if sum(sizes) != total:
        raise BatchError(
            f"micro_batch={list(sizes)} adds up to {sum(sizes)} examples, but the batch has {total}. "
            "Give one number for the largest micro-batch, or sizes that add up."
        )
    start = 0
    if split is None and is_pair_batch(batch):
        for size in sizes:
            yield batch[0].narrow(0, start, size), batch[1].narrow(0, start, size)
            start += size
        return
    for size in sizes:
        stop = start + size
        taking = _ExampleTaker(total, slice(start, stop), in_columns=making.in_columns)
        yield split.take(batch, start, stop) if split else taking.of(batch, "batch")
        start = stop


def batch_rows(batch: Batch, start: int, stop: int, making: BatchOrigin = UNKNOWN) -> Batch:
    """Return the examples `start` to `stop` (exclusive) of a batch."""
    taking = _ExampleTaker(count_examples(batch, making), slice(start, stop), in_columns=making.in_columns)
    return taking.of(batch, "batch")


def map_batch_tensors(function: Callable[[Tensor], Any], batch: Batch) -> Batch:
    """Return `batch` with `function` applied to every tensor of it, in the same structure."""

    def map_leaf(leaf: Any) -> Any:
        if isinstance(leaf, PackedSequence):
            # Its other fields are indices on the host, which no function of values concerns.
            return leaf._replace(data=function(leaf.data))
        return function(leaf) if isinstance(leaf, Tensor) else leaf

    return nested_structures.map_batch_leaves(map_leaf, batch)


def batch_to_device(batch: Batch, device: torch.device, *, non_blocking: bool = False) -> Batch:
    """Return `batch` with every tensor (and packed sequence) of it on `device`; nothing is copied that is there."""

    # some devices read a host's memory after the copy has returned, when it may be written to already
    unwaited = non_blocking and allows_non_blocking_copy(device)

    def move_leaf(leaf: Any) -> Any:
        if isinstance(leaf, Tensor | PackedSequence):
            return leaf.to(device, non_blocking=unwaited)  # type: ignore[arg-type]
        return leaf

    return nested_structures.map_batch_leaves(move_leaf, batch)


def _leading_size(value: Any) -> int | None:
    """Number of examples of a leaf; None for what has none (numbers, strings, 0-d tensors)."""
    if isinstance(value, Tensor | np.ndarray):
        return value.shape[0] if value.ndim else None
    if isinstance(value, PackedSequence):
        return int(value.batch_sizes[0])
    return None


def _is_leaf(value: Any) -> bool:
    return isinstance(value, Tensor | np.ndarray | PackedSequence)


def _leaf_sizes(
    value: Any, path: str, *, enter_lists: bool, enter_records: bool = False
) -> Iterator[tuple[str, int]]:
    if _is_leaf(value):
        size = _leading_size(value)
        if size is not None:
            yield path, size
    elif enter_lists and not enter_records and isinstance(value, list) and _is_list_of_records(value):
        yield f"len({path})", len(value)
    elif not isinstance(value, list) or enter_lists:
        for suffix, member in nested_structures.batch_children(value) or ():
            yield from _leaf_sizes(
                member, path + suffix, enter_lists=enter_lists, enter_records=enter_records
            )


def _is_list_of_records(value: list[Any]) -> bool:
    """Whether a list holds mappings or data classes, all of one kind: most often one an example."""
    if not value or not all(
        isinstance(member, Mapping | SimpleNamespace) or nested_structures.is_data_class(member)
        for member in value
    ):
        return False
    # mappings are of one kind where they have the same keys
    kinds = {(type(m), *(m if isinstance(m, Mapping) else ())) for m in value}
    return len(kinds) == 1


def _list_lengths(value: Any, path: str) -> Iterator[tuple[str, int]]:
    if isinstance(value, list):
        yield f"len({path})", len(value)
    elif not _is_leaf(value):
        for suffix, member in nested_structures.batch_children(value) or ():
            yield from _list_lengths(member, path + suffix)


def _uncountable_batch_error(batch: Batch) -> BatchError:
    leaves = [leaf for _, leaf in nested_structures.batch_leaves(batch, "batch")]
    unknown = [leaf for leaf in leaves if not (_is_leaf(leaf) or isinstance(leaf, NO_ROWS))]
    found = (
        f"{a_type(unknown[0])}, whose tensors are not looked into"
        if unknown
        else "no tensor with a leading dimension"
    )
    return BatchError(
        f"This batch holds {found}, so its examples can't be counted or split. "
        "Pass split=ts.Split(count, take) with functions that know its structure."
    )


def _agreed_size(sizes: Mapping[str, int], where: str) -> int:
    if len(set(sizes.values())) > 1:
        listed = ", ".join(f"{path}: {size}" for path, size in list(sizes.items())[:8])
        raise BatchError(
            f"The tensors of this batch differ along their {where} ({listed}), so it is not clear what one example "
            "is and the batch can't be split. Give all of them the batch's size there, or pass split=1 for "
            "time-major tensors, or split=ts.Split(count, take) for graphs and the like."
        )
    # an error of its own: of several processes one may have no example of a batch
    size = next(iter(sizes.values()))
    if size == 0:
        raise EmptyBatchError(
            f"This batch is empty (size 0 along the {where}): a mean over no examples is not defined. "
            "Leave empty batches out of the loop."
        )
    return size


class _ExampleTaker:
    """Takes a part of the examples of a batch that has `total` of them."""

    def __init__(self, total: int, part: slice, *, in_columns: bool) -> None:
        self._total, self._part, self._in_columns = total, part, in_columns

    def of(self, value: Any, path: str) -> Any:
        """Return that part of a batch, or of what is within it."""
        if isinstance(value, Tensor | np.ndarray):
            return value[self._part] if value.ndim else value
        if isinstance(value, PackedSequence):
            return _take_packed_sequences(value, self._part)
        if isinstance(value, list) and self._holds_examples(value, path):
            if len(value) != self._total:
                raise BatchError(
                    f"{path} is a list of {len(value)} members that don't agree on their leading dimension, in a batch of "
                    f"{self._total} examples. Give it one member an example, or pass split=ts.Split(count, take)."
                )
            return value[self._part]
        parts = nested_structures.batch_children(value)
        if parts is None:
            return value
        return nested_structures.rebuild_batch(
            value, [self.of(each, path + suffix) for suffix, each in parts]
        )

    def _holds_examples(self, value: list[Any], path: str) -> bool:
        """Whether a list has one member an example, and is not a structure whose members all hold as many as the batch.

        Where both can be, its maker knows; else inside a batch a list of so many alike members is taken for examples.
        """
        sizes = [size for _, size in _leaf_sizes(value, path, enter_lists=True, enter_records=True)]
        if not value and path != "batch":
            return False  # default_collate's of samples that each hold an empty list
        if not sizes or any(size != self._total for size in sizes):
            return True
        # Each member holds as many rows as the batch: only of as many members could each be an example, too.
        if self._in_columns or len(value) != self._total:
            return False
        alike = len({(m.dtype, m.ndim) if isinstance(m, Tensor) else type(m) for m in value}) == 1
        return _is_list_of_records(value) or (path != "batch" and self._total > 1 and alike)


def _take_packed_sequences(packed: PackedSequence, part: slice) -> PackedSequence:
    # Unpacked and packed again: in a packed sequence the steps of all examples lie side by side.
    padded, lengths = pad_packed_sequence(packed, batch_first=True)
    lengths = lengths[part]
    padded = padded[part, : int(lengths.max())]
    is_sorted = packed.sorted_indices is None
    return pack_padded_sequence(padded, lengths, batch_first=True, enforce_sorted=is_sorted)
