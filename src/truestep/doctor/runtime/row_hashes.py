# SPDX-License-Identifier: Apache-2.0
"""One number for each row of a batch: rows of the same bits have the same, others hardly ever.

All of it stays on the batch's device, so that nobody waits for one until rows are compared.
"""

from functools import cache

import torch
from torch import Tensor

MOST = 1024  # numbers of a row that are looked at, from all over it
# odd factors of a known mixing function of 64 bits (splitmix64), as signed numbers
_STRIDE, _FIRST, _SECOND = 0x9E3779B97F4A7C15 - 2**64, 0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64
_BITS = {
    torch.float32: torch.int32,
    torch.float64: torch.int64,
    torch.float16: torch.int16,
    torch.bfloat16: torch.int16,
}


def sampled_rows(values: Tensor) -> Tensor:
    """Return a batch (rows, ...) as (rows, numbers), with at most `MOST` numbers of each row, always the same ones."""
    rows = values.detach().reshape(len(values), -1)
    return rows[:, :: -(-rows.shape[1] // MOST)] if rows.shape[1] > MOST else rows


def row_fingerprints(rows: Tensor) -> Tensor:
    """Return a number for each row of (rows, numbers): a sum of its bits, each by a weight of its place."""
    kind = _BITS.get(rows.dtype)
    bits = rows.contiguous().view(kind) if kind is not None else rows
    return _mix_bits((bits.to(torch.int64) * _hash_weights(rows.shape[1], rows.device)).sum(1))


def combine_fingerprints(first: Tensor, second: Tensor) -> Tensor:
    """Return a number for each pair of prints."""
    return _mix_bits(first * _STRIDE + second)


def share_of_fractional_numbers(rows: Tensor) -> Tensor | None:
    """Return the share of numbers that are not whole, of floating-point rows."""
    return (rows != rows.round()).float().mean() if rows.is_floating_point() else None


@cache
def _hash_weights(count: int, device: torch.device) -> Tensor:
    return _mix_bits(torch.arange(1, count + 1, device=device) * _STRIDE) | 1


def _mix_bits(values: Tensor) -> Tensor:
    """Spread what differs in few bits over all of them."""
    values = (values ^ (values >> 30)) * _FIRST
    values = (values ^ (values >> 27)) * _SECOND
    return values ^ (values >> 31)
