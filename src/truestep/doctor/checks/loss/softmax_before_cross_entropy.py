# SPDX-License-Identifier: Apache-2.0
"""Cross entropy of probabilities."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.runtime.history import LossCall
from truestep.doctor.source.activations import last_operation_nodes, without_activation
from truestep.doctor.source.losses import loss_calls
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.rewriting import Edits
from truestep.doctor.source.value_origins import argument, last_operations
from truestep.doctor.watcher_base import Observation, Observations, Watcher

if TYPE_CHECKING:
    from truestep.doctor.runtime.history import WatchHistory


class SoftmaxBeforeCrossEntropy(SourceCheck, Watcher):
    """Probabilities go into cross entropy, which takes logits.

    Why: softmax is applied twice; the loss can't come near 0 (1.46 is the least with 10 classes) and
    gradients are small.

    Bad:
        probabilities = net(x).softmax(1)
        loss = F.cross_entropy(probabilities, y)  # here

    Good:
        logits = net(x)
        loss = F.cross_entropy(logits, y)

    Fix: give cross entropy the raw outputs; use softmax only to show probabilities.

    Evidence: eriklindernoren/PyTorch-GAN 36d3c77e implementations/acgan/acgan.py:100; eriklindernoren/PyTorch-
    GAN 36d3c77e implementations/infogan/infogan.py:111; 186 repositories, beds A, C, E, F, G, H, I, K, M, N, P,
    Q, R, S, T, U, V, W, X, Y: 102 true, 3 debatable, 1 false.
    """

    code = "LOSS001"
    words = ("oftmax", "igmoid", "exp(")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a cross entropy whose input was made by softmax or sigmoid, on every path."""
        for call in loss_calls(module, "cross_entropy"):
            given = argument(call, 0, "input")
            operations = last_operations(module, given) if given is not None else set()
            if (
                operations
                and operations <= {"softmax", "sigmoid", "softmax2d"}
                and isinstance(given, ast.expr)
            ):
                made = " or ".join(sorted(str(each) for each in operations))
                places = _other_places_of_input(module, call, given)
                text = "The input of cross entropy is the result of {}: it takes raw logits."
                if len(places) == 1:
                    path, line = places[0]
                    told = text.format(f"{made} at {PurePath(path).name}:{line}")
                    yield At(call, told, evidence={"made_at": f"{path}:{line}"})
                else:
                    yield At(call, text.format(made))

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Leave the activation out."""
        return without_activation(module, node, argument(node, 0, "input"))

    def on_loss(self, history: WatchHistory, loss: LossCall) -> Observations:
        """Look at the operation that made the input."""
        made = history.made(loss.input, loss.place)
        if loss.name == "cross_entropy" and made.operation in ("softmax", "sigmoid"):
            text = f"The input of cross entropy is the result of {made.told}."
            yield Observation(loss.place, text, evidence=made.evidence())


def _other_places_of_input(module: SourceModule, loss: ast.Call, given: ast.expr) -> list[tuple[str, int]]:
    """Return where what makes the input is written, if that is not the statement of the loss itself."""
    own = module.statement(loss)
    made = [(module.home(each), each) for each in last_operation_nodes(module, given)]
    return sorted({(home.path, each.lineno) for home, each in made if home.statement(each) is not own})
