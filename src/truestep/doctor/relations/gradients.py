# SPDX-License-Identifier: Apache-2.0
"""Gradients by parameter, compared: how far apart they are, and whether one is the other times a number."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

Gradients = Mapping[str, Tensor | None]
"""By the name of the parameter; None where there is none."""

# A sum of m numbers in another order differs by some √m times the rounding, and gradients cancel: a factor of a thousand leaves
# room for both. A mistake changes them by a tenth and more.
_ROUNDINGS = 2000
_LEAST_TOLERANCE = 1e-7
_LARGEST_TOLERANCE = 0.1
_LEAST_SHARE = 1e-3  # of the whole gradient: a parameter's below it is rounding
_MOST_SPREAD = 0.02  # of a factor that is the same for all parameters


class GradientComparison(NamedTuple):
    """How far one gradient is from another, by the parameter where it is worst.

    Attributes:
        difference: of that parameter, |first − second| / max(|first|, |second|).
        parameter: its name.
        factor: first = factor · second for all parameters, where that holds.
    """

    difference: float
    parameter: str
    factor: float | None


def gradient_tolerance(rounding: float, repeated: float = 0.0) -> float:
    """Return how far apart gradients may be that are the same.

    Args:
        rounding: of the coarsest float type that the loss computes in.
        repeated: how far apart those of the same batch were, computed twice.
    """
    return max(_LEAST_TOLERANCE, min(_LARGEST_TOLERANCE, _ROUNDINGS * rounding), 10 * repeated)


def compare_gradients(
    first: Gradients, second: Gradients, *, least_share: float = _LEAST_SHARE
) -> GradientComparison:
    """Return how far apart two gradients are, by the parameter where it is most.

    Args:
        first: one of them.
        second: the other.
        least_share: the share of the whole gradient below which a parameter's is taken for rounding.
    """
    names = [name for name in second if first.get(name) is not None or second[name] is not None]
    pairs = {
        name: (_flat_float64(first.get(name), second[name]), _flat_float64(second[name], first.get(name)))
        for name in names
    }
    size = max((float(each.norm()) for pair in pairs.values() for each in pair), default=0.0)
    worst, where = 0.0, ""
    for name, (a, b) in pairs.items():
        # what is small beside the rest may be rounding alone
        larger = max(float(a.norm()), float(b.norm()), least_share * size)
        difference = float((a - b).norm()) / larger if larger else 0.0
        if math.isnan(difference):
            return GradientComparison(difference, name, None)
        if difference > worst:
            worst, where = difference, name
    return GradientComparison(worst, where, _common_factor(pairs, least_share * size))


def merge_shared_gradients(found: Gradients, parameters: Mapping[str, Tensor]) -> Gradients:
    """Return gradients with those of parameters that lie in the same memory added up, under the first one's name.

    A parametrization of a weight that two layers share makes a second parameter of the same numbers: moving one moves both.
    """
    first: dict[tuple[int, ...], str] = {}
    merged: dict[str, Tensor | None] = {}
    for name, gradient in found.items():
        known = first.setdefault(_memory_key(parameters[name]), name)
        before = merged.get(known)
        merged[known] = gradient if before is None else before if gradient is None else before + gradient
    return merged


def _memory_key(parameter: Tensor) -> tuple[int, ...]:
    if parameter.layout is not torch.strided or not parameter.data_ptr():
        return (id(parameter),)
    return (parameter.data_ptr(), *parameter.shape, *parameter.stride())


def compare_with_halves(
    first: Gradients, second: Gradients, whole: Gradients, *, least_share: float = _LEAST_SHARE
) -> GradientComparison:
    """Return how far the whole batch's gradient is from the nearest weighted mean of its halves' ones.

    The halves are (A, A) and (B, B), of the whole's size. Their weights may differ, since a masked mean's do.
    """
    names = [name for name in whole if whole[name] is not None]
    if not names:
        return compare_gradients(first, whole, least_share=least_share)
    a, b, c = (
        torch.cat([_flat_float64(each.get(name), whole[name]) for name in names])
        for each in (first, second, whole)
    )
    between = a - b
    share = float((c - b) @ between / (between @ between)) if float(between.norm()) else 0.5
    means = [_weighted_mean(first, second, weight) for weight in (0.5, min(1.0, max(0.0, share)))]
    return min(
        (compare_gradients(mean, whole, least_share=least_share) for mean in means),
        key=lambda each: each.difference,
    )


def add_gradients(first: Gradients, second: Gradients) -> Gradients:
    """Return the sum of two gradients."""
    return {
        name: None if each is None else 2 * each for name, each in _weighted_mean(first, second, 0.5).items()
    }


def parameters_by_block(names: Sequence[str]) -> dict[str, list[str]]:
    """Return names of parameters by as much of them as tells two blocks apart."""
    found: dict[str, list[str]] = {}
    for depth in range(1, 5):
        found = {}
        for name in names:
            found.setdefault(".".join(name.split(".")[:depth]), []).append(name)
        if len(found) > 1:
            break
    return found


def _weighted_mean(first: Gradients, second: Gradients, weight: float) -> Gradients:
    return {
        name: weight * _flat_float64(first.get(name), second.get(name))
        + (1 - weight) * _flat_float64(second.get(name), first.get(name))
        for name in {**first, **second}
        if first.get(name) is not None or second.get(name) is not None
    }


def _flat_float64(value: Tensor | None, like: Tensor | None) -> Tensor:
    """Return a gradient as numbers of double precision on the CPU; zeros where there is none."""
    if value is None:
        assert like is not None
        return torch.zeros(like.numel() * (2 if like.is_complex() else 1), dtype=torch.float64)
    dense = value.detach().to_dense() if value.layout is not torch.strided else value.detach()
    dense = torch.view_as_real(dense.resolve_conj()) if dense.is_complex() else dense
    return dense.to("cpu", torch.float64).reshape(-1)


def _common_factor(pairs: Mapping[str, tuple[Tensor, Tensor]], least: float) -> float | None:
    """Return the number that all of one gradient is of the other, None where there is no one number."""
    factors = []
    for a, b in pairs.values():
        norm = float(b.norm())
        if max(norm, float(a.norm())) <= least:
            continue
        if not norm:
            return None
        factor = float(a @ b) / norm**2
        if not float((a - factor * b).norm()) <= _MOST_SPREAD * float(a.norm()):
            return None
        factors.append(factor)
    if not factors or min(factors) <= 0 or max(factors) > (1 + _MOST_SPREAD) * min(factors):
        return None
    return sum(factors) / len(factors)
