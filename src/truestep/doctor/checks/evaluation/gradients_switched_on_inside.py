# SPDX-License-Identifier: Apache-2.0
"""enable_grad in a helper."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.evaluations import is_switch
from truestep.doctor.source.module import SourceModule


class GradientsSwitchedOnInside(SourceCheck):
    """A function under no_grad() switches gradients on again.

    Why: the nearest wins: the graph is recorded although the caller switched it off.

    Bad:
        @torch.enable_grad()
        def embed(x):
            return net(x)

        with torch.no_grad():
            z = embed(x)  # here

    Good:
        def embed(x):
            return net(x)

        with torch.no_grad():
            z = embed(x)

    Fix: leave the mode to the caller.
    """

    code = "EVAL005"
    words = ("enable_grad",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a call, under no_grad, of a function decorated with enable_grad."""
        for call in module.all(ast.Call):
            target = module.target(call)
            decorators = getattr(target, "decorator_list", [])
            if not any(is_switch(module, each, "enable_grad") for each in decorators):
                continue
            blocks = [each for each in module.ancestors(call) if isinstance(each, ast.With)]
            if any(
                is_switch(module, item.context_expr, "no_grad", "inference_mode")
                for each in blocks
                for item in each.items
            ):
                yield At(
                    call, "no_grad() is in force here, but the function switches gradients on again.", RISK
                )
