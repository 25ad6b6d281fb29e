# SPDX-License-Identifier: Apache-2.0
"""Means of losses and metrics that nobody has asked for yet.

A mean of 32 numbers takes 15 µs in the middle of an update, where its kernel has been driven from the caches, and 1 µs as one
of many rows (docs/log.md). So an update copies what it would average, and whoever reads takes the means of many copies in one
pass. They have the bits that each has alone (tests/engine/test_means.py).
"""

from collections.abc import Sequence

import torch
from torch import Tensor

MOST_VALUES = 1 << 12
"""Of a vector that is copied; beside what gave a longer one, its mean costs nothing."""
AT_ONCE = 1 << 15
"""Values from which torch may divide a pass among threads, and with it each sum (its GRAIN_SIZE)."""


def noted_metric_mean(values: Tensor) -> Tensor:
    """Return the mean of values that need no gradient; of a short vector on a CPU a copy, which stands for its mean."""
    is_short = values.ndim == 1 and values.numel() <= MOST_VALUES
    if is_short and values.is_cpu and values.dtype is torch.float32 and values.is_contiguous():
        return values.clone()
    return values.mean()


def noted_metric_value(one: Tensor) -> Tensor:
    """Return the mean that was noted."""
    return one.mean() if one.ndim else one


def metric_means_as_numbers(many: Sequence[Tensor]) -> list[float]:
    """Return the means that were noted, as numbers; waits for the device where they are on one."""
    if len(many) == 1:
        return [float(noted_metric_value(many[0]))]
    numbers = [0.0] * len(many)
    places: dict[int, list[int]] = {}
    for place, one in enumerate(many):
        places.setdefault(len(one) if one.ndim else 0, []).append(place)
    for length, found in places.items():
        size = max(1, AT_ONCE // length - 1) if length else len(found)
        for some in (found[first : first + size] for first in range(0, len(found), size)):
            together = torch.stack([many[place] for place in some])
            for place, number in zip(some, (together.mean(1) if length else together).tolist(), strict=True):
                numbers[place] = number
    return numbers
