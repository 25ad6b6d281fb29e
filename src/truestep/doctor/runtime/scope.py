# SPDX-License-Identifier: Apache-2.0
"""What a watch follows: which checks, and which calls are wrapped for them."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from truestep.doctor.check import Check
from truestep.doctor.runtime import wrapped_training_calls
from truestep.doctor.runtime.dispatcher import Dispatcher
from truestep.doctor.runtime.wrapping import WatchWrappers


@dataclass(frozen=True)
class WatchScope:
    """The checks of a watch, and what wraps the calls that they follow."""

    checks: tuple[type[Check], ...]
    wrap: Callable[[Dispatcher, WatchWrappers], None]


# Where the engine drives the loop it does the rest of the protocol itself; these mistakes stay the user's. None is a
# probe: nobody asked for the model to be applied once more.
# By module and class, so that a run's start imports these and not every check.
_IN_RUNS = (
    ("data.batches_of_one_class", "BatchesOfOneClass"),
    ("data.inputs_not_normalised", "InputsNotNormalised"),
    ("gradients.bootstrap_target_with_gradient", "BootstrapTargetWithGradient"),
    ("gradients.term_trains_nothing", "TermTrainsNothing"),
    ("loss.error_made_large", "ErrorMadeLarge"),
    ("loss.loss_not_finite", "LossNotFinite"),
    ("loss.first_loss_too_large", "FirstLossTooLarge"),
    ("loss.probabilities_in_nll_loss", "ProbabilitiesInNllLoss"),
    ("loss.shapes_broadcast", "ShapesBroadcast"),
    ("loss.sigmoid_before_bce_with_logits", "SigmoidBeforeBceWithLogits"),
    ("loss.softmax_before_cross_entropy", "SoftmaxBeforeCrossEntropy"),
    ("parameters.layer_without_gradient", "LayerWithoutGradient"),
    ("parameters.parameter_never_moves", "ParameterNeverMoves"),
    ("parameters.units_dead", "UnitsDead"),
)


def whole_script_scope() -> WatchScope:
    """Return the scope of a script: every check, the whole protocol."""
    from truestep.doctor.catalogue import checks

    return WatchScope(tuple(checks().values()), wrapped_training_calls.wrap_protocol)


def engine_loop_scope() -> WatchScope:
    """Return the scope of a loop that the engine drives: what is about its data, model and loss."""
    found = (getattr(import_module(f"truestep.doctor.checks.{module}"), name) for module, name in _IN_RUNS)
    return WatchScope(tuple(found), wrapped_training_calls.wrap_engine_loop)
