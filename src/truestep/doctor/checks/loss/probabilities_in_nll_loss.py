# SPDX-License-Identifier: Apache-2.0
"""nll_loss or kl_div without log_softmax."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from truestep.doctor.check import QUESTION, RISK, At, SourceCheck
from truestep.doctor.library.losses import loss_function_names
from truestep.doctor.library.operations import operations
from truestep.doctor.runtime.history import LossCall
from truestep.doctor.source.activations import activation_call
from truestep.doctor.source.loss_modules import calls_with_graph, is_model_call
from truestep.doctor.source.losses import loss_calls
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.rewriting import Edits, SourceRewriteError, rename_attribute
from truestep.doctor.source.value_origins import argument, calls_behind, last_operations
from truestep.doctor.watcher_base import Observation, Observations, Watcher

if TYPE_CHECKING:
    from truestep.doctor.runtime.history import WatchHistory

ABOVE = 1e-3  # rounding is smaller
LOSSES = loss_function_names(given="log-shares")
NOT_LOGARITHMS = operations(numbers="share projected rectified activated")


class ProbabilitiesInNllLoss(SourceCheck, Watcher):
    """nll_loss or kl_div gets probabilities or raw outputs where it takes log-probabilities, or kl_div its sides exchanged.

    Why: nll_loss only picks and negates, and kl_div only multiplies: the loss is no likelihood or divergence (it may be
    negative, or have no floor), and its gradient knows no other class.

    Bad:
        loss = F.nll_loss(net(x).softmax(1), y)  # here

    Good:
        loss = F.nll_loss(net(x).log_softmax(1), y)

    Fix: use log_softmax before nll_loss and kl_div, or cross_entropy on the raw outputs. A student that is to match a teacher
    is the input: F.kl_div(student.log_softmax(1), teacher.softmax(1), reduction="batchmean").

    Evidence: the plain form of row 36 of docs/mistakes.md; 186 repositories: said 1 times, not judged; beds G,
    H, S, V: 5 true, 1 debatable, 0 false.
    """

    code = "LOSS003"
    words = ("nll_loss", "NLLLoss", "kl_div", "KLDivLoss")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report one whose input was made by something that is no logarithm."""
        for name in LOSSES:
            for call in loss_calls(module, name):
                given = argument(call, 0, "input")
                operations = last_operations(module, given) if given is not None else set()
                if operations and operations <= NOT_LOGARITHMS:
                    made = " or ".join(sorted(str(each) for each in operations))
                    yield At(
                        call, f"The input of {name} is the result of {made}: it takes log-probabilities."
                    )
                elif name == "kl_div" and _has_gradient_in_target_only(module, call):
                    yield At(call, _TURNED, QUESTION)

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Take the logarithm of the softmax."""
        made = activation_call(module, node, argument(node, 0, "input"))
        if not ast.unparse(made.func).endswith(".softmax"):
            raise SourceRewriteError
        return [rename_attribute(module, made.func, "log_softmax")]

    def on_loss(self, history: WatchHistory, loss: LossCall) -> Observations:
        """Look at the operation that made the input."""
        made = history.made(loss.input, loss.place)
        if loss.name in LOSSES and made.operation in ("softmax", "sigmoid", "linear", "relu"):
            text = f"The input of {loss.name} is the result of {made.told}."
            yield Observation(loss.place, text, evidence=made.evidence())
        elif loss.name == "kl_div" and loss.target.requires_grad and not loss.input.requires_grad:
            yield Observation(loss.place, _TURNED, QUESTION)
        elif (
            loss.name == "nll_loss"
            and history.is_in_first_steps
            and bool((loss.input.detach() > ABOVE).any())
        ):
            text = "The input of nll_loss holds numbers above 0, which no log-probability of a class is."
            yield Observation(loss.place, text, RISK, {"largest": float(loss.input.detach().max())})


_TURNED = (
    "The input of kl_div has no gradient, and its target has: this is the divergence of the trained from the fixed distribution, "
    "and not the other way round."
)


def _has_gradient_in_target_only(module: SourceModule, loss: ast.Call) -> bool:
    """Tell a divergence whose target a model computes with its graph, and whose input one computes without."""
    given, target = argument(loss, 0, "input"), argument(loss, 1, "target")
    if (
        given is None
        or target is None
        or any(is_model_call(module, each) for each in calls_with_graph(module, given))
    ):
        return False
    is_of_model = any(is_model_call(module, each) for each in calls_behind(module, given))
    return is_of_model and any(is_model_call(module, each) for each in calls_with_graph(module, target))
