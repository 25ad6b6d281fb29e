# SPDX-License-Identifier: Apache-2.0
"""Binary cross entropy with logits, of probabilities."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.runtime.history import LossCall
from truestep.doctor.source.activations import without_activation
from truestep.doctor.source.arguments import argument_for
from truestep.doctor.source.live_variables import is_unread
from truestep.doctor.source.losses import loss_calls
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function
from truestep.doctor.source.rewriting import Edits
from truestep.doctor.source.value_origins import argument, last_operations
from truestep.doctor.watcher_base import Observation, Observations, Watcher

if TYPE_CHECKING:
    from truestep.doctor.runtime.history import WatchHistory


class SigmoidBeforeBceWithLogits(SourceCheck, Watcher):
    """Probabilities go into binary_cross_entropy_with_logits, which applies the sigmoid itself.

    Why: the sigmoid is applied twice: predictions stay between 0.5 and 0.73, and the loss can't come near 0.

    Bad:
        p = torch.sigmoid(net(x))
        loss = F.binary_cross_entropy_with_logits(p, torch.ones_like(p))  # here

    Good:
        logits = net(x)
        loss = F.binary_cross_entropy_with_logits(logits, torch.ones_like(logits))

    Fix: give it the raw outputs (or use binary_cross_entropy on probabilities, which is less stable).

    Evidence: 186 repositories, beds G, M, Q, S: 16 true, 1 false.
    """

    code = "LOSS002"
    words = ("igmoid", "oftmax")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report one whose input was made by sigmoid or softmax on every path."""
        for call in loss_calls(module, "binary_cross_entropy_with_logits"):
            given = argument(call, 0, "input")
            operations = _operations_behind_input(module, given) if given is not None else set()
            if operations and operations <= {"sigmoid", "softmax"} and not is_unread(module, call):
                yield At(call, "The input is the result of a sigmoid already: this loss takes raw logits.")

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Leave the activation out."""
        return without_activation(module, node, argument(node, 0, "input"))

    def on_loss(self, history: WatchHistory, loss: LossCall) -> Observations:
        """Look at the operation that made the input."""
        made = history.made(loss.input, loss.place)
        if loss.name == "binary_cross_entropy_with_logits" and made.operation in ("sigmoid", "softmax"):
            text = f"The input is the result of {made.told} already."
            yield Observation(loss.place, text, evidence=made.evidence())


def _operations_behind_input(module: SourceModule, given: ast.expr) -> AbstractSet[str | None]:
    """Return what made the input last; of a criterion's parameter what made what every call in sight gives for it."""
    function = module.scope(given)
    if not isinstance(given, ast.Name) or not isinstance(function, Function):
        return last_operations(module, given)
    if [each.how for each in module.names.bindings(given)] != ["parameter"]:
        return last_operations(module, given)
    known = module.functions
    calls = [
        each
        for file in module.program.linked
        for each in file.all(ast.Call)
        if (known.target(each) or known.applied(each)) is function
    ]
    values = [(call, argument_for(function, call, given.id)) for call in calls]
    made = [
        last_operations(module.home(call), value) if value is not None else {None} for call, value in values
    ]
    return frozenset().union(*(each or {None} for each in made))
