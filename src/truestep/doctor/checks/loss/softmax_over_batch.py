# SPDX-License-Identifier: Apache-2.0
"""softmax over dimension 0."""

from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.losses import classifier_outputs
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.values import argument, literal


class SoftmaxOverBatch(SourceCheck):
    """The softmax of a model's outputs runs over dimension 0, the batch.

    Why: the examples of a batch compete with each other instead of the classes.

    Bad:
        log_probabilities = F.log_softmax(net(x), dim=0)
        loss = F.nll_loss(log_probabilities, y)  # here

    Good:
        log_probabilities = F.log_softmax(net(x), dim=1)
        loss = F.nll_loss(log_probabilities, y)

    Fix: dim=1 for outputs of shape (batch, classes), dim=-1 where classes come last.

    Evidence: the plain form of row 37 of docs/mistakes.md.
    """

    code = "LOSS007"
    words = ("oftmax",)
    shows_as = ("DATA015",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a loss over classes whose input is a softmax over dimension 0."""
        for call, origin in classifier_outputs(module):
            name = (module.qualify(origin.func) or "").rsplit(".", 1)[-1]
            if name in ("softmax", "log_softmax") and literal(module, argument(origin, 1, "dim")) == 0:
                yield At(call, f"Its input is a {name} over dimension 0, the batch.", RISK)
