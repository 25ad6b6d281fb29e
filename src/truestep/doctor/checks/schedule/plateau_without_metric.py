# SPDX-License-Identifier: Apache-2.0
"""ReduceLROnPlateau without what it watches."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.values import is_call_of

PLATEAU = "torch.optim.lr_scheduler.ReduceLROnPlateau"


class PlateauWithoutMetric(SourceCheck):
    """ReduceLROnPlateau.step() is called without a metric.

    Why: torch raises TypeError; it has nothing to compare.

    Bad:
        sched = torch.optim.lr_scheduler.ReduceLROnPlateau(opt)
        sched.step()  # here

    Good:
        sched = torch.optim.lr_scheduler.ReduceLROnPlateau(opt)
        sched.step(0.5)

    Fix: sched.step(validation_loss).
    """

    code = "SCHED003"
    words = ("ReduceLROnPlateau",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report step() without arguments on a name that is one for certain."""
        for call in module.method_calls("step"):
            receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
            if receiver is None or call.args or call.keywords:
                continue
            values = module.definitions(receiver)
            if values and all(is_call_of(module, each, PLATEAU) for each in values):
                yield At(call, "ReduceLROnPlateau.step() needs the metric: this raises TypeError.")
