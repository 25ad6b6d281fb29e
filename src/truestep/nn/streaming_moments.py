# SPDX-License-Identifier: Apache-2.0
"""Weight, mean and sum of squared deviations of a stream, merged exactly enough that the order can't be seen.

Mean and sum are kept as unevaluated sums of two float64 numbers, so that a mean of 1e8 spreads costs no digits of the spread.

Sources: Chan, Golub & LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances" (1979);
Dekker, "A floating-point technique for extending the available precision" (1971).
"""

from typing import NamedTuple

import torch
from torch import Tensor

Pair = tuple[Tensor, Tensor]


class RunningMoments(NamedTuple):
    """Per feature, in float64: how much weight was seen, its mean, and the weighted sum of squared deviations from it."""

    weight: Tensor
    mean: Tensor
    mean_low: Tensor  # what the float64 mean lacks
    squares: Tensor
    squares_low: Tensor


def measure_moments(values: Tensor, weights: Tensor) -> RunningMoments:
    """Return the moments of float64 `values` (rows, features) with `weights` >= 0 of shape (rows, features) or (rows, 1)."""
    if values.shape[0] == 0:
        return RunningMoments(*torch.zeros(5, values.shape[1], dtype=torch.float64))
    seen = (weights > 0).expand_as(values)
    total = weights.sum(0).expand(values.shape[1])
    divisor = torch.where(total > 0, total, 1.0)
    # An observed value as the first guess makes a feature that never changes come out as exactly constant.
    guess = values.gather(0, seen.to(torch.uint8).argmax(0, keepdim=True)).squeeze(0)
    guess = torch.where(total > 0, guess, 0.0)
    mean = guess + (weights * torch.where(seen, values - guess, 0.0)).sum(0) / divisor
    deviations = torch.where(seen, values - mean, 0.0)
    low = (weights * deviations).sum(0) / divisor
    squares = ((weights * deviations.square()).sum(0) - total * low.square()).clamp(min=0.0)
    return RunningMoments(total, *_renormalize_double_double(mean, low), squares, torch.zeros_like(squares))


def merge_moments(first: RunningMoments, second: RunningMoments) -> RunningMoments:
    """Return the moments of both streams together."""
    total = first.weight + second.weight
    share = torch.where(total > 0, second.weight / torch.where(total > 0, total, 1.0), 0.0)
    mean = (first.mean, first.mean_low)
    high, low = _add_double_double((second.mean, second.mean_low), (-first.mean, -first.mean_low))
    between = (high + low).square() * first.weight * share
    squares = _add_double_double((first.squares, first.squares_low), (second.squares, second.squares_low))
    return RunningMoments(
        total,
        *_add_double_double(mean, (high * share, low * share)),
        *_add_double_double(squares, (between, torch.zeros_like(between))),
    )


def _add_double_double(first: Pair, second: Pair) -> Pair:
    high = first[0] + second[0]
    moved = high - first[0]
    lost = (first[0] - (high - moved)) + (second[0] - moved)
    return _renormalize_double_double(high, lost + first[1] + second[1])


def _renormalize_double_double(high: Tensor, low: Tensor) -> Pair:
    rounded = high + low
    return rounded, low - (rounded - high)
