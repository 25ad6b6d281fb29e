# SPDX-License-Identifier: Apache-2.0
"""What a loss makes small, and what large: errors and log-probabilities behind its terms, with their signs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from truestep.doctor.finding import Place
from truestep.doctor.runtime.loss_terms import WatchedTerm

# torch's errors, by the operation that gives them, and by the node of their graph
_ERRORS = frozenset(
    {
        *("cross_entropy", "nll_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits"),
        *("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div", "ctc_loss"),
        *("Nll", "Mse", "SmoothL1", "Huber", "BinaryCrossEntropy", "BinaryCrossEntropyWithLogits"),
    }
)
# averages, and what passes numbers on or picks some of them
_PASSING = ("Mean", "Sum", "View", "UnsafeView", "ReshapeAlias", "Squeeze", "Unsqueeze", "Clone", "ToCopy")
_PICKING = ("Gather", "Index", "Select", "Slice", "TakeAlongDim", "Expand", "Permute", "Transpose", "T")
_DEPTH = 12  # operations behind a term


@dataclass(frozen=True)
class LossDirection:
    """An error or a log-probability that a loss makes smaller or larger."""

    what: str  # "cross_entropy", "squared difference", "log-probability"
    weight: float  # by which it enters what is made small
    is_wrong: bool  # an error is made large, or a log-probability small
    place: Place


def loss_direction(term: WatchedTerm) -> LossDirection | None:
    """Return what a term of a loss makes small or large, if that can be told from the graph behind it."""
    made = term.origin.past_changes_of_shape().operation if term.origin is not None else ""
    place = term.added_at
    if made in _ERRORS:
        return LossDirection(made, term.weight, term.weight < 0, place)
    sign, name, node, passed = _strip_averages_and_signs(term.node)
    weight = term.weight * sign
    if name.removesuffix("Loss") in _ERRORS or (name.startswith("NllLoss")):
        return LossDirection(name, weight, weight < 0, place)
    if _is_even_function(name, node) and operation_of_node(_node_behind(node)) == "Sub":
        return LossDirection("difference", weight, weight < 0, place)
    likely = name == "LogSoftmax" and not passed.isdisjoint(_PICKING)
    likely = likely or name == "LogSigmoid" or _is_log_of_probability(name, node)
    # of one choice alone the reward may be a number
    if likely and (
        not passed.isdisjoint(("Mean", "Sum")) or shape_of_node(term.node) not in (None, (), (1,))
    ):
        return LossDirection("log-probability", weight, weight > 0, place)
    return None


def _strip_averages_and_signs(node: Any) -> tuple[float, str, Any, frozenset[str]]:
    """Go through averages and signs; return the sign, what lies behind, and what was gone through."""
    sign, passed = 1.0, set()
    for _ in range(_DEPTH):
        name = operation_of_node(node)
        if name not in (*_PASSING, *_PICKING, "Neg"):
            break
        sign = -sign if name == "Neg" else sign
        passed.add(name)
        node = _node_behind(node)
    return sign, operation_of_node(node), node, frozenset(passed)


def _is_log_of_probability(name: str, node: Any) -> bool:
    return name == "Log" and _strip_averages_and_signs(_node_behind(node))[1] in ("Softmax", "Sigmoid")


def _is_even_function(name: str, node: Any) -> bool:
    """Tell an absolute value, or a square."""
    return name == "Abs" or (name == "Pow" and float(getattr(node, "_saved_exponent", 0)) == 2.0)


def _node_behind(node: Any) -> Any:
    behind = getattr(node, "next_functions", ())
    return behind[0][0] if behind else None


def operation_of_node(node: Any) -> str:
    """Return the name of a node's operation: `MeanBackward0` is Mean."""
    if not hasattr(node, "next_functions"):  # a leaf
        return ""
    return str(node.name()).rstrip("0123456789").removesuffix("Backward").rstrip("0123456789D")


def shape_of_node(node: Any) -> tuple[int, ...] | None:
    """Return the shape of what a node of a graph gave; None where that is not known, as of what carries none."""
    given = getattr(node, "_input_metadata", None)
    return tuple(given[0].shape) if given else None
