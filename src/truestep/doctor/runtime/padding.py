# SPDX-License-Identifier: Apache-2.0
"""Finds the filled-up ends of sequences in a batch by their numbers, and what is asked for there."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

LEAST = 0.05  # of the positions
MOST = 1 << 20  # numbers; a larger batch is not gone through


@dataclass(frozen=True)
class PaddedTargets:
    """The places that only fill a batch up, as the model was given them, and the class that is asked for there."""

    filler: int  # the symbol in the model's input
    target: int  # the class there
    share: float  # of all places that count


def padded_targets(given: Tensor, target: Tensor, ignored: int) -> PaddedTargets | None:
    """Return what is asked for where the rows of an input (batch, time) end in one symbol that stands nowhere else.

    The targets may be those of the same steps or of the next ones, flat or not; None where no such ends count.
    """
    if given.dim() != 2 or given.numel() > MOST or given.is_floating_point() or given.dtype == torch.bool:
        return None
    for symbols, turned in ((given, False), (given.T, True)):
        size = symbols.shape[1]
        for later in (0, 1):
            if target.numel() != len(symbols) * (size - later) or size - later < 2:
                continue
            asked = target.reshape(size - later, -1).T if turned else target.reshape(len(symbols), -1)
            found = _found(symbols[:, later:], asked, ignored)
            if found is not None:
                return found
    return None


def padding_of(symbols: Tensor) -> Tensor | None:
    """Return where the rows (batch, time) are filled up: they end in one symbol that stands nowhere else.

    None where they don't, where all end alike, or where a row is nothing else.
    """
    if symbols.numel() > MOST or symbols.shape[1] < 2:
        return None
    ends = symbols == symbols[:, -1].mode().values
    runs = ends.flip(1).cumprod(1).flip(1).bool()  # the unbroken one at each row's end
    lengths = runs.sum(1)
    varied = bool(lengths.min() < lengths.max()) and bool((lengths > 1).sum() > 1)
    return runs if varied and torch.equal(runs, ends) and bool(lengths.max() < symbols.shape[1]) else None


def _found(symbols: Tensor, asked: Tensor, ignored: int) -> PaddedTargets | None:
    ends = padding_of(symbols)
    if ends is None:
        return None
    inside = ends.clone()
    inside[:, 1:] &= ends[:, :-1]  # at the first of them the end itself may be asked for
    inside[:, 0] = False
    classes = set(asked[inside].tolist())
    counted = asked != ignored
    share = float((inside & counted).sum() / counted.sum().clamp(min=1))
    if len(classes) != 1 or share < LEAST or classes == {ignored}:
        return None
    return PaddedTargets(int(symbols[:, -1].mode().values), classes.pop(), share)
