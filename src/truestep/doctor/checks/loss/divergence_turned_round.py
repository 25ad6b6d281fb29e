# SPDX-License-Identifier: Apache-2.0
"""A divergence whose two sides are exchanged."""

from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.behind import is_without_grad, models_behind
from truestep.doctor.source.losses import losses_of
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.values import argument, behind


class DivergenceTurnedRound(SourceCheck):
    """kl_div() is given the fixed distribution as its input, and the one that learns as its target.

    Why: it then computes the divergence the other way round: the student is drawn to one mode of the teacher, and what
    torch computes for a target's gradient is not what distillation means.

    Bad:
        with torch.no_grad():
            wanted = net(x + 1)
        loss = F.kl_div(F.log_softmax(wanted, 1), net(x).softmax(1), reduction="batchmean")  # here

    Good:
        with torch.no_grad():
            wanted = net(x + 1)
        loss = F.kl_div(F.log_softmax(net(x), 1), wanted.softmax(1), reduction="batchmean")

    Fix: kl_div(log_softmax(student), softmax(teacher)).
    """

    code = "LOSS041"
    words = ("kl_div", "KLDiv")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a divergence in which a gradient goes back through the target alone, in its own function."""
        for call in losses_of(module, "kl_div"):
            given, target = argument(call, 0, "input"), argument(call, 1, "target")
            if given is None or target is None or is_without_grad(module, call):
                continue
            fixed = any(True for _ in behind(module, given)) and not models_behind(module, given)
            if fixed and models_behind(module, target):
                yield At(
                    call, "The input has no gradient, and the target has: the sides are exchanged.", RISK
                )
