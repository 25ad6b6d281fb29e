# SPDX-License-Identifier: Apache-2.0
"""Parameters re-made when the optimizer holds the old ones."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck, Unsure
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import walk

REMAKE = {
    f"{home}.{name}"
    for home in ("torch.nn.utils", "torch.nn.utils.parametrizations")
    for name in ("weight_norm", "spectral_norm", "orthogonal")
}


class WeightNormAfterOptimizer(SourceCheck):
    """weight_norm or spectral_norm is applied to a model after its optimizer was made.

    Why: it replaces the weight by new parameters that the optimizer does not hold: they are never trained.

    Bad:
        def normalize(m):
            if isinstance(m, nn.Conv1d):
                torch.nn.utils.parametrizations.weight_norm(m)

        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        net.apply(normalize)  # here

    Good:
        def normalize(m):
            if isinstance(m, nn.Conv1d):
                torch.nn.utils.parametrizations.weight_norm(m)

        net.apply(normalize)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)

    Fix: apply it first, then make the optimizer.
    """

    code = "PARAM006"
    words = ("_norm", "orthogonal")

    def read(self, module: SourceModule) -> Iterator[At | Unsure]:
        """Report it, or an apply() of a function that does it, after an optimizer in the same block."""
        for call in [*module.calls(*REMAKE), *self._applied(module)]:
            block = module.parents[module.statement(call)]
            made = [
                each
                for name, each in module.calls_matching("torch.optim.")
                if not name.startswith("torch.optim.lr_")
            ]
            before = [
                each
                for each in made
                if module.parents[module.statement(each)] is block and each.lineno < call.lineno
            ]
            after = [each for each in made if each.lineno > call.lineno]
            if before and not after and not isinstance(block, ast.ClassDef):
                yield At(
                    call, f"The weights are replaced after the optimizer was made on line {before[0].lineno}."
                )

    def _applied(self, module: SourceModule) -> list[ast.Call]:
        found = []
        for call in module.method_calls("apply"):
            function = module.function_named(call.args[0]) if call.args else None
            if function and any(
                isinstance(node, ast.Call) and module.qualify(node.func) in REMAKE for node in walk(function)
            ):
                found.append(call)
        return found
