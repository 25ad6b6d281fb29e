# SPDX-License-Identifier: Apache-2.0
"""Means of losses and metrics that nobody has asked for yet.

A mean of 32 numbers takes 15 µs in the middle of an update, where its kernel has been driven from the caches, and 1 µs as one
of many rows (docs/log.md). So an update notes what it would average, and whoever reads takes the means of many in one pass.
They have the bits that each has alone (tests/engine/test_means.py).
"""

from array import array
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor

Noted = Tensor | list[float]
"""What stands for a mean: the mean itself (without dimensions), a copy of what it is of, or the numbers."""

MOST_NUMBERS = 64
"""Of a vector that is noted as numbers, which costs less than a copy and needs no kernel to be looked at."""
MOST_VALUES = 1 << 12
"""Of a vector that is copied; beside what gave a longer one, its mean costs nothing."""
MANY = 8
"""Vectors of one update from which on one pass over all of them costs less than a list, or a copy, of each."""
AT_ONCE = 1 << 15
"""Values from which torch may divide a pass among threads, and with it each sum (its GRAIN_SIZE)."""


def deferred_mean(values: Tensor) -> Noted:
    """Return what stands for the mean of values, without a gradient; nobody else can write to it."""
    # as `_is_cpu_float_vector`, without its call: this runs in every update
    if values.ndim == 1 and values.is_cpu and values.dtype is torch.float32 and values.is_contiguous():
        count = values.numel()  # `len` of a tensor is a function in Python
        if count <= MOST_NUMBERS:
            return values.tolist()
        if count <= MOST_VALUES:
            return values.detach().clone()
    return values.detach().mean()


def deferred_means(many: Sequence[Tensor]) -> list[Noted]:
    """Return what stands for the mean of each of these, as of one alone."""
    count = many[0].numel()
    alike = len(many) >= MANY and 0 < count <= MOST_VALUES
    if not alike or not all(each.numel() == count and _is_cpu_float_vector(each) for each in many):
        return [deferred_mean(each) for each in many]
    with torch.no_grad():
        parts = [torch.stack(tuple(part)).mean(1).tolist() for part in _row_chunks(many, count)]
    return [[mean] for part in parts for mean in part]


def _is_cpu_float_vector(values: Tensor) -> bool:
    return values.ndim == 1 and values.is_cpu and values.dtype is torch.float32 and values.is_contiguous()


def _row_chunks(rows: Sequence[Any], length: int) -> Iterator[Sequence[Any]]:
    """Yield so many rows of this length at a time that no pass is divided among threads."""
    size = max(1, AT_ONCE // length - 1) if length else len(rows)
    return (rows[first : first + size] for first in range(0, len(rows), size))


def deferred_mean_value(one: Noted) -> Tensor:
    """Return the mean that was noted."""
    if isinstance(one, list):
        return _rows_to_tensor([one]).mean()
    return one.mean() if one.ndim else one


def metric_means_as_numbers(many: Sequence[Noted]) -> list[float]:
    """Return the means that were noted, as numbers; waits for the device where they are on one."""
    if len(many) == 1:
        return [float(deferred_mean_value(many[0]))]
    numbers = [0.0] * len(many)
    places: dict[tuple[bool, int], list[int]] = {}
    # rows of one length are averaged in one kernel, each with the bits that it has alone
    for place, one in enumerate(many):
        are_numbers = isinstance(one, list)
        length = len(one) if isinstance(one, list) or one.ndim else 0
        places.setdefault((are_numbers, length), []).append(place)
    for (are_numbers, length), found in places.items():
        for some in _row_chunks(found, length):
            rows: list[Any] = [many[place] for place in some]
            together = _rows_to_tensor(rows) if are_numbers else torch.stack(rows)
            for place, number in zip(some, (together.mean(1) if length else together).tolist(), strict=True):
                numbers[place] = number
    return numbers


def _rows_to_tensor(rows: list[list[float]]) -> Tensor:
    """Return rows of as many numbers as one tensor."""
    return torch.frombuffer(array("f", chain.from_iterable(rows)), dtype=torch.float32).view(len(rows), -1)
