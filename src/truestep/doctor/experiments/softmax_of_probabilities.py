# SPDX-License-Identifier: Apache-2.0
"""Knows shares that are taken for logits: by a softmax, or where noise of Gumbel's is added to draw of them."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from truestep.doctor.experiments.follower_base import TensorNotes

_TAKE_LOGITS = frozenset({"softmax", "log_softmax", "logsumexp", "gumbel_softmax"})
_UNIFORM = frozenset({"rand", "rand_like", "uniform"})
_KEEP = frozenset(
    {"neg", "negative", "add", "sub", "rsub", "clamp", "clamp_min", "clamp_max", "to", "float", "mul"}
)
_SAME = 1e-4  # of sums of shares
_LOGARITHMS = 2  # of uniform noise, until it is Gumbel's


class SharesAsLogitsFinder:
    """Looks at operations for shares, and follows noise to its second logarithm."""

    def __init__(self) -> None:
        self._logarithms = TensorNotes[int]()

    def look(
        self,
        name: str,
        result: Tensor,
        given: Sequence[Tensor],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> str | None:
        """Return what takes shares for logits, nothing where it takes others; None of what takes none."""
        if name in _TAKE_LOGITS:
            axis = kwargs.get("dim", args[1] if len(args) > 1 and name != "gumbel_softmax" else -1)
            axis = axis[0] if isinstance(axis, (tuple, list)) and len(axis) == 1 else axis
            return (
                f"goes into {name}" if isinstance(axis, int) and are_probability_rows(given[0], axis) else ""
            )
        if name in _UNIFORM or name == "exponential":
            self._logarithms[result] = int(name == "exponential")
            return None
        known = [self._logarithms.get(each) for each in given]
        if name in ("add", "sub") and _LOGARITHMS in known and None in known:
            return "gets Gumbel's noise" if are_probability_rows(given[known.index(None)], -1) else ""
        if known[0] is not None and len(given) == 1 and (name == "log" or name in _KEEP):
            self._logarithms[result] = known[0] + (name == "log")
        return None


def are_probability_rows(value: Tensor, axis: int) -> bool:
    """Tell rows that are never below 0, all of one sum, and neither alike nor labels in the form of 0 and 1."""
    if not value.is_floating_point() or not -value.ndim <= axis < value.ndim:
        return False
    rows = value.detach().movedim(axis, -1).flatten(0, -2).float() if value.ndim > 1 else value.detach()[None]
    if len(rows) < 2 or rows.shape[1] < 2 or not bool((rows >= 0).all()):
        return False
    sums = rows.sum(1)
    most = rows.amax(1, keepdim=True)
    is_one_hot = bool(((rows == 0) | (rows == most)).all())
    return not is_one_hot and bool(sums[0] > 0) and bool(((sums - sums[0]).abs() <= _SAME * sums[0]).all())
