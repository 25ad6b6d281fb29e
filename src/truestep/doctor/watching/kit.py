# SPDX-License-Identifier: Apache-2.0
"""What a watch works with: which checks, and which calls it wraps."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from truestep.doctor.check import Check
from truestep.doctor.watching import protocol
from truestep.doctor.watching.wrapping import Wrappers

if TYPE_CHECKING:
    from truestep.doctor.watch import Watch


@dataclass(frozen=True)
class Kit:
    """The checks of a watch, and what wraps the calls that they follow."""

    checks: tuple[type[Check], ...]
    install: Callable[["Watch", Wrappers], None]


# Where the engine drives the loop it does the rest of the protocol itself; these faults stay the user's.
# By module and class, so that a run's start imports these and not every check.
_IN_RUNS = (
    ("data.batches_of_one_class", "BatchesOfOneClass"),
    ("data.examples_mixed", "ExamplesMixed"),
    ("data.inputs_not_normalised", "InputsNotNormalised"),
    ("evaluation.evaluation_not_repeatable", "EvaluationNotRepeatable"),
    ("loss.every_target_ignored", "EveryTargetIgnored"),
    ("loss.first_loss_too_large", "FirstLossTooLarge"),
    ("loss.only_one_class", "OnlyOneClass"),
    ("loss.probabilities_in_nll_loss", "ProbabilitiesInNllLoss"),
    ("loss.shapes_broadcast", "ShapesBroadcast"),
    ("loss.sigmoid_before_bce_with_logits", "SigmoidBeforeBceWithLogits"),
    ("loss.softmax_before_cross_entropy", "SoftmaxBeforeCrossEntropy"),
    ("parameters.layer_without_gradient", "LayerWithoutGradient"),
    ("parameters.parameter_never_moves", "ParameterNeverMoves"),
    ("parameters.units_dead", "UnitsDead"),
)


def kit_for_everything() -> Kit:
    """Return the kit of a script: every check, the whole protocol."""
    from truestep.doctor.catalogue import checks

    return Kit(tuple(checks().values()), protocol.install)


def kit_for_runs() -> Kit:
    """Return the kit of a loop that the engine drives: what is about its data, model and loss."""
    found = (getattr(import_module(f"truestep.doctor.checks.{module}"), name) for module, name in _IN_RUNS)
    return Kit(tuple(found), protocol.install_losses)
