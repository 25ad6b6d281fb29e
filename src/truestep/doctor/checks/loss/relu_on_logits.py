# SPDX-License-Identifier: Apache-2.0
"""An activation after the last layer."""

from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.losses import loss_calls
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.value_origins import argument, last_operations


class ReluOnLogits(SourceCheck):
    """The outputs that go into a loss over classes end in a ReLU.

    Why: no logit can be negative: probabilities stay too even, and a class whose logit is cut gets no
    gradient.

    Bad:
        logits = F.relu(net(x))
        loss = F.cross_entropy(logits, y)  # here

    Good:
        logits = net(F.relu(x))
        loss = F.cross_entropy(logits, y)

    Fix: no activation after the last layer.

    Evidence: the plain form of row 39 of docs/mistakes.md; 186 repositories: said 3 times, not judged; beds F,
    O, Q, S, T, V, W: 10 true, 0 false.
    """

    code = "LOSS010"
    words = ("relu", "ReLU")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a loss on logits whose input was made by ReLU on every path."""
        for call in loss_calls(module, "cross_entropy", "binary_cross_entropy_with_logits"):
            given = argument(call, 0, "input")
            operations = last_operations(module, given) if given is not None else set()
            if operations and operations <= {"relu", "relu6", "relu_"}:
                yield At(call, "The logits are the result of a ReLU: none can be negative.", RISK)
