# SPDX-License-Identifier: Apache-2.0
"""Averages averaged over ranks."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule


class MeanOfMeans(SourceCheck):
    """Each rank's average is summed over ranks and divided by their number.

    Why: ranks with fewer samples count as much as the others: 0.5 instead of 0.75 with 3 and 1 samples.

    Bad:
        acc = torch.tensor(correct / seen)
        dist.all_reduce(acc)  # here
        acc /= dist.get_world_size()

    Good:
        totals = torch.tensor([correct, seen])
        dist.all_reduce(totals)
        acc = totals[0] / totals[1]

    Fix: all-reduce sums and counts, divide once at the end.
    """

    code = "DIST008"
    words = ("all_reduce",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report all_reduce of a name made by a quotient of two counts."""
        for call in module.calls("torch.distributed.all_reduce"):
            given = call.args[0] if call.args else None
            values = module.definitions(given) if given is not None else []
            if values and all(self._is_quotient(module, each) for each in values):
                yield At(
                    call, "Each rank's own average is summed: ranks with fewer samples count as much.", RISK
                )

    def _is_quotient(self, module: SourceModule, value: ast.expr | None) -> bool:
        if (
            isinstance(value, ast.Call)
            and module.qualify(value.func) in ("torch.tensor", "torch.as_tensor")
            and value.args
        ):
            value = value.args[0]
        if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Div):
            return False
        return not isinstance(value.right, ast.Constant) and "world" not in ast.unparse(value.right)
