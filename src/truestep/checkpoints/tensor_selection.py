# SPDX-License-Identifier: Apache-2.0
"""Boxes of tensors, and which of them somebody wants of a checkpoint. Imports no torch."""

from collections.abc import Callable
from typing import Any, NamedTuple


class TensorBox(NamedTuple):
    """A box of a tensor: where it begins in each dimension, and its shape."""

    offset: tuple[int, ...]
    shape: tuple[int, ...]

    def common(self, other: "TensorBox") -> "TensorBox | None":
        """Return what both have of the tensor; None where that is nothing."""
        sides = list(zip(self.offset, self.shape, other.offset, other.shape, strict=True))
        begins = tuple(max(at, there) for at, _, there, _ in sides)
        ends = [min(at + size, there + length) for at, size, there, length in sides]
        shape = tuple(end - begin for begin, end in zip(begins, ends, strict=True))
        return None if any(size <= 0 for size in shape) else TensorBox(begins, shape)

    def within(self, other: "TensorBox") -> tuple[slice, ...]:
        """Return where it lies in a box that it is a part of."""
        return tuple(
            slice(at - there, at - there + size)
            for at, size, there in zip(self.offset, self.shape, other.offset, strict=True)
        )


class RequestedTensorBox(NamedTuple):
    """A box of a tensor that is wanted alone, and what is made of its values."""

    box: TensorBox
    made: Callable[[Any], Any]


PartOf = Callable[[str, tuple[int, ...]], RequestedTensorBox | None]
"""Says which part is wanted of a tensor of this name and shape; None: all of it."""
