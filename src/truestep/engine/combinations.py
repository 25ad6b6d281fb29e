# SPDX-License-Identifier: Apache-2.0
"""Pairs of options that don't work together, each with its reason: one table, no ladders elsewhere."""

from collections.abc import Callable
from typing import NamedTuple

from torch.optim import Optimizer

from truestep.core.errors import OptionError
from truestep.engine.clipping import Clip, ClipAdaptive, ClipFunction, ClipValue
from truestep.engine.optimizers import has_wrong_kernel, optimizer_needs_closure
from truestep.engine.options import LearnerOptions
from truestep.engine.precision import Precision
from truestep.engine.weights import LearnerWeights


class LearnerCombination(NamedTuple):
    """What is looked at of a learner that is being made."""

    options: LearnerOptions
    precision: Precision
    clip: Clip | None
    weights: LearnerWeights
    optimizers: list[Optimizer]

    @property
    def needs_closure(self) -> bool:
        """Whether an optimizer evaluates the loss itself."""
        return optimizer_needs_closure(self.optimizers)

    @property
    def are_divided(self) -> bool:
        """Whether each process has a part of the weights."""
        return self.weights.are_divided

    @property
    def has_complex(self) -> bool:
        """Whether a parameter is complex."""
        return any(parameter.is_complex() for parameter in self.weights.parameters)


class LearnerConflict(NamedTuple):
    """Two options that exclude each other."""

    first: str
    second: str
    applies: Callable[[LearnerCombination], bool]
    reason: str


def _with_fsdp(option: str, applies: Callable[[LearnerCombination], bool], reason: str) -> LearnerConflict:
    """Return what can't be done where weights are divided."""
    return LearnerConflict(option, 'strategy="fsdp"', lambda made: made.are_divided and applies(made), reason)


CONFLICTS = (
    _with_fsdp(
        "LBFGS",
        lambda made: made.needs_closure,
        'its line search multiplies whole vectors of weights, of which each process has a part. Use strategy="ddp".',
    ),
    _with_fsdp(
        "ts.ClipAdaptive or a clip function",
        lambda made: isinstance(made.clip, ClipAdaptive | ClipFunction),
        "it looks at whole gradients, of which each process has a part. Use ts.ClipNorm or ts.ClipValue.",
    ),
    _with_fsdp(
        'micro_batch="auto"',
        lambda made: made.options.micro_batch == "auto",
        "a process whose memory runs out can't go back alone: the others are waiting for its weights. Give a number.",
    ),
    _with_fsdp(
        "compile=True",
        lambda made: made.options.compile,
        "weights are gathered between the layers, where a compiled graph would have to be broken. Compile the layers "
        "themselves before: layer.compile().",
    ),
    _with_fsdp(
        "sparse gradients (nn.Embedding(..., sparse=True))",
        lambda made: made.weights.has_sparse,
        "torch sums dense parts. Use sparse=False.",
    ),
    _with_fsdp(
        "complex parameters",
        lambda made: made.has_complex,
        'they are not tested there. Use strategy="ddp".',
    ),
    LearnerConflict(
        "LBFGS",
        "a precision with a loss scale",
        lambda made: made.needs_closure and made.precision.loss_scaling,
        "its line search compares losses and gradients of several evaluations, which an overflow in one of them makes "
        'meaningless. Use precision="float32", "float64" or "bf16-mixed".',
    ),
    LearnerConflict(
        "LBFGS",
        "a second optimizer in the same learner",
        lambda made: made.needs_closure and len(made.optimizers) > 1,
        "it evaluates the loss while it steps, with the other optimizer's parameters half-way. Make two learners.",
    ),
    LearnerConflict(
        "LBFGS",
        "float32 master weights (O2)",
        lambda made: made.needs_closure and made.precision.master_weights,
        "it moves the masters and evaluates the half-precision weights, which it does not see. Use float32.",
    ),
    LearnerConflict(
        "a precision with a loss scale",
        "complex parameters",
        lambda made: made.precision.loss_scaling and made.has_complex,
        'torch has no float16 arithmetic for them, nor a check of their gradients for overflow. Use float32 or "bf16-mixed".',
    ),
    LearnerConflict(
        "ts.ClipValue",
        "complex parameters",
        lambda made: isinstance(made.clip, ClipValue) and made.has_complex,
        "complex numbers have no order, so there is nothing to clamp to. Use ts.ClipNorm.",
    ),
    LearnerConflict(
        "ts.ClipAdaptive",
        "sparse gradients (nn.Embedding(..., sparse=True))",
        lambda made: isinstance(made.clip, ClipAdaptive) and made.weights.has_sparse,
        "it compares whole parameters with whole gradients, and a sparse one holds few rows. Use ts.ClipNorm, or sparse=False.",
    ),
    LearnerConflict(
        "half-precision weights",
        "sparse gradients (nn.Embedding(..., sparse=True))",
        lambda made: made.weights.has_half and made.weights.has_sparse,
        "they could not be added up in float32 row by row. Use a mixed precision, or sparse=False.",
    ),
    LearnerConflict(
        "torch.optim.SGD(fused=True)",
        "half-precision weights on a CPU",
        lambda made: any(
            has_wrong_kernel(o) and any(g["fused"] for g in o.param_groups) for o in made.optimizers
        ),
        "torch's kernel computes wrong numbers from them. Leave fused out: the engine chooses what is right and fast.",
    ),
    LearnerConflict(
        "loss_scale",
        "a precision without a loss scale",
        lambda made: made.options.loss_scale is not None and not made.precision.loss_scaling,
        'only float16 gradients underflow. Leave loss_scale out, or use precision="fp16-mixed", "fp16" or "O2".',
    ),
)


def check_learner_combination(made: LearnerCombination) -> None:
    """Raise an `OptionError` for the first pair in the table that applies."""
    for conflict in CONFLICTS:
        if conflict.applies(made):
            raise OptionError(
                f"{conflict.first} and {conflict.second} don't work together in {made.options.name!r} "
                f"(precision {made.precision.name}): {conflict.reason}"
            )
