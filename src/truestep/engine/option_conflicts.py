# SPDX-License-Identifier: Apache-2.0
"""Pairs of options that don't work together, each with its reason: one table, no ladders elsewhere."""

from collections.abc import Callable
from typing import NamedTuple

from torch.optim import SGD, Adafactor, Adagrad, Optimizer

from truestep.core.errors import OptionError
from truestep.engine.clipping.adaptive import ClipAdaptive
from truestep.engine.clipping.base import Clip
from truestep.engine.clipping.value import ClipValue
from truestep.engine.optimizers import has_faulty_fused_kernel, optimizer_needs_closure
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


class LearnerConflict(NamedTuple):
    """Two options that exclude each other, by their names in `HAS`."""

    first: str
    second: str
    reason: str


LBFGS, FSDP, LOSS_SCALE = "LBFGS", 'strategy="fsdp"', "a precision with a loss scale"
ADAFACTOR, AUTO = "torch.optim.Adafactor", 'micro_batch="auto"'
SPARSE, COMPLEX = "sparse gradients (nn.Embedding(..., sparse=True))", "complex parameters"
# Whether a learner has an option.
HAS: dict[str, Callable[[LearnerCombination], bool]] = {
    FSDP: lambda made: made.weights.are_divided,
    SPARSE: lambda made: made.weights.has_sparse,
    COMPLEX: lambda made: any(parameter.is_complex() for parameter in made.weights.parameters),
    LBFGS: lambda made: optimizer_needs_closure(made.optimizers),
    "torch.optim.SGD(fused=True) or Adagrad(fused=True)": lambda made: any(
        isinstance(o, SGD | Adagrad) and any(g["fused"] for g in o.param_groups) for o in made.optimizers
    ),
    ADAFACTOR: lambda made: any(isinstance(each, Adafactor) for each in made.optimizers),
    "a second optimizer in the same learner": lambda made: len(made.optimizers) > 1,
    "torch.optim.SGD(fused=True)": lambda made: any(
        has_faulty_fused_kernel(o) and any(g["fused"] for g in o.param_groups) for o in made.optimizers
    ),
    "half-precision weights on a CPU": lambda made: any(map(has_faulty_fused_kernel, made.optimizers)),
    "half-precision weights": lambda made: made.weights.has_half,
    "float32 master weights (O2)": lambda made: made.precision.master_weights,
    LOSS_SCALE: lambda made: made.precision.loss_scaling,
    "a precision without a loss scale": lambda made: not made.precision.loss_scaling,
    "loss_scale": lambda made: made.options.loss_scale is not None,
    "ts.ClipValue": lambda made: isinstance(made.clip, ClipValue),
    "ts.ClipAdaptive": lambda made: isinstance(made.clip, ClipAdaptive),
    "a clip of whole gradients": lambda made: made.clip is not None and not made.clip.takes_parts,
    AUTO: lambda made: made.options.micro_batch == "auto",
    "compile=True": lambda made: made.options.compile,
}
# fmt: off
CONFLICTS = [LearnerConflict(*each) for each in (
    (LBFGS, FSDP,
     'its line search multiplies whole vectors of weights, of which each process has a part. Use strategy="ddp".'),
    (ADAFACTOR, FSDP,
     'it takes means over the rows and columns of whole weights, of which each process has a part. Use strategy="ddp", or AdamW.'),
    ("torch.optim.SGD(fused=True) or Adagrad(fused=True)", FSDP,
     "torch has no such kernel for parts of weights. Leave fused out: the engine chooses what is right and fast."),
    ("a clip of whole gradients", FSDP,
     ("each process has a part of them. Use ts.ClipNorm or ts.ClipValue; a class of your own that looks at each number by "
      "itself, or at the norm alone, says so: takes_parts = True.")),
    (AUTO, FSDP,
     "a process whose memory runs out can't go back alone: the others are waiting for its weights. Give a number."),
    ("compile=True", FSDP,
     ("weights are gathered between the layers, where a compiled graph would have to be broken. Compile the layers "
      "themselves before: layer.compile().")),
    (SPARSE, FSDP, "torch sums dense parts. Use sparse=False."),
    (COMPLEX, FSDP, 'they are not tested there. Use strategy="ddp".'),
    (LBFGS, LOSS_SCALE,
     ("its line search compares losses and gradients of several evaluations, which an overflow in one of them makes "
      'meaningless. Use precision="float32", "float64" or "bf16-mixed".')),
    (LBFGS, "a second optimizer in the same learner",
     "it evaluates the loss while it steps, with the other optimizer's parameters half-way. Make two learners."),
    (LBFGS, "float32 master weights (O2)",
     "it moves the masters and evaluates the half-precision weights, which it does not see. Use float32."),
    (LOSS_SCALE, COMPLEX,
     'torch has no float16 arithmetic for them, nor a check of their gradients for overflow. Use float32 or "bf16-mixed".'),
    ("ts.ClipValue", COMPLEX,
     "complex numbers have no order, so there is nothing to clamp to. Use ts.ClipNorm."),
    ("ts.ClipAdaptive", SPARSE,
     "it compares whole parameters with whole gradients, and a sparse one holds few rows. Use ts.ClipNorm, or sparse=False."),
    ("half-precision weights", SPARSE,
     "they could not be added up in float32 row by row. Use a mixed precision, or sparse=False."),
    ("torch.optim.SGD(fused=True)", "half-precision weights on a CPU",
     "torch's kernel computes wrong numbers from them. Leave fused out: the engine chooses what is right and fast."),
    ("loss_scale", "a precision without a loss scale",
     'only float16 gradients underflow. Leave loss_scale out, or use precision="fp16-mixed", "fp16" or "O2".'),
)]
# fmt: on


def refuse_auto_micro_batch(name: str) -> None:
    """Raise the `OptionError` of a learner's micro_batch="auto" with divided weights for that of one update."""
    reason = next(each.reason for each in CONFLICTS if (each.first, each.second) == (AUTO, FSDP))
    raise OptionError(f"{AUTO} and {FSDP} don't work together in an update of {name}: {reason}")


def check_learner_combination(made: LearnerCombination) -> None:
    """Raise an `OptionError` for the first pair in the table that applies."""
    for first, second, reason in CONFLICTS:
        if HAS[first](made) and HAS[second](made):
            raise OptionError(
                f"{first} and {second} don't work together in {made.options.name!r} (precision {made.precision.name}): {reason}"
            )
