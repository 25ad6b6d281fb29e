# SPDX-License-Identifier: Apache-2.0
"""Numbers in double precision that ride behind the gradients of a bucket in single precision, and come out exact.

A bucket is summed over the ranks in its own type, so each rank writes into slots that are zero on all others: what is summed there
are zeros and one number. A number is written as three of single precision that add up to it.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

_PARTS = 3  # of 24 bits each, for the 53 of a double


def num_bucket_slots(num_numbers: int, size: int) -> int:
    """Return how many slots so many numbers need on so many ranks."""
    return num_numbers * size * _PARTS


def write_bucket_riders(numbers: Tensor, into: Tensor, *, rank: int, size: int) -> None:
    """Write this rank's numbers (float64, in the range of the slots' type) into the slots, which are zero."""
    if into.is_cpu:
        _write_on_host(numbers.numpy(), into.numpy().reshape(size, _PARTS, -1)[rank])
        return
    slots = into.view(size, _PARTS, -1)[rank]
    parts = [numbers.to(into.dtype)]
    rest = numbers
    for _ in range(1, _PARTS):
        rest = rest - parts[-1]
        parts.append(rest.to(into.dtype))
    torch.stack(parts, out=slots)
    slots[1:].nan_to_num_(0, 0, 0)  # of an infinity nothing remains


@np.errstate(invalid="ignore", over="ignore")
def _write_on_host(rest: Any, slots: Any) -> None:
    # by NumPy, whose operations on a few numbers take a third of torch's
    slots[0] = rest
    for part in range(1, _PARTS):
        rest = rest - slots[part - 1]
        rest[~np.isfinite(rest)] = 0
        slots[part] = rest


def read_bucket_riders(slots: Tensor, num_numbers: int, *, size: int) -> Tensor:
    """Return the sums over all ranks, in float64; the same bits on each."""
    if slots.is_cpu:
        with np.errstate(invalid="ignore"):
            parts = slots.numpy().reshape(size, _PARTS, num_numbers)
            return torch.from_numpy(np.add.reduce(parts, axis=1, dtype=np.float64)).sum(0)
    return slots.view(size, _PARTS, num_numbers).to(torch.float64).sum(1).sum(0)
