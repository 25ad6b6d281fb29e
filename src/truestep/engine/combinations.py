# SPDX-License-Identifier: Apache-2.0
"""Pairs of options that don't work together, each with its reason: one table, no ladders elsewhere."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from truestep.engine.clipping import ClipAdaptive, ClipValue
from truestep.errors import OptionError

if TYPE_CHECKING:
    from truestep.engine.learner import Learner


class Conflict(NamedTuple):
    """Two options that exclude each other."""

    first: str
    second: str
    applies: "Callable[[Learner], bool]"
    reason: str


CONFLICTS = (
    Conflict(
        "LBFGS",
        "a precision with a loss scale",
        lambda learner: learner.needs_closure and learner.precision.loss_scaling,
        "its line search compares losses and gradients of several evaluations, which an overflow in one of them makes "
        'meaningless. Use precision="float32", "float64" or "bf16-mixed".',
    ),
    Conflict(
        "LBFGS",
        "a second optimizer in the same learner",
        lambda learner: learner.needs_closure and len(learner.optimizers) > 1,
        "it evaluates the loss while it steps, with the other optimizer's parameters half-way. Make two learners.",
    ),
    Conflict(
        "LBFGS",
        "float32 master weights (O2)",
        lambda learner: learner.needs_closure and learner.precision.master_weights,
        "it moves the masters and evaluates the half-precision weights, which it does not see. Use float32.",
    ),
    Conflict(
        "a precision with a loss scale",
        "complex parameters",
        lambda learner: learner.precision.loss_scaling and _has_complex(learner),
        'torch has no float16 arithmetic for them, nor a check of their gradients for overflow. Use float32 or "bf16-mixed".',
    ),
    Conflict(
        "ts.ClipValue",
        "complex parameters",
        lambda learner: isinstance(learner.clip, ClipValue) and _has_complex(learner),
        "complex numbers have no order, so there is nothing to clamp to. Use ts.ClipNorm.",
    ),
    Conflict(
        "ts.ClipAdaptive",
        "sparse gradients (nn.Embedding(..., sparse=True))",
        lambda learner: isinstance(learner.clip, ClipAdaptive) and learner.has_sparse,
        "it compares whole parameters with whole gradients, and a sparse one holds few rows. Use ts.ClipNorm, or sparse=False.",
    ),
    Conflict(
        "half-precision weights",
        "sparse gradients (nn.Embedding(..., sparse=True))",
        lambda learner: learner.has_half_weights and learner.has_sparse,
        "they could not be added up in float32 row by row. Use a mixed precision, or sparse=False.",
    ),
    Conflict(
        "loss_scale",
        "a precision without a loss scale",
        lambda learner: learner.options.loss_scale is not None and not learner.precision.loss_scaling,
        'only float16 gradients underflow. Leave loss_scale out, or use precision="fp16-mixed", "fp16" or "O2".',
    ),
)


def _has_complex(learner: "Learner") -> bool:
    return any(parameter.is_complex() for parameter in learner.weights)


def check_combination(learner: "Learner") -> None:
    """Raise an `OptionError` for the first pair in the table that applies to `learner`."""
    for conflict in CONFLICTS:
        if conflict.applies(learner):
            raise OptionError(
                f"{conflict.first} and {conflict.second} don't work together in {learner.name!r} "
                f"(precision {learner.precision.name}): {conflict.reason}"
            )
