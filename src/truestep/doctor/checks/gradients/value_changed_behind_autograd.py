# SPDX-License-Identifier: Apache-2.0
"""In-place writes through .data."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule

CHANGES = ("zero_", "fill_", "mul_", "add_", "sub_", "div_", "clamp_", "copy_", "normal_", "uniform_")


class ValueChangedBehindAutograd(SourceCheck):
    """The output of a module is changed in place through .data.

    Why: autograd does not see it: gradients belong to values that are gone.

    Bad:
        out = net(x)
        out.data.zero_()  # here

    Good:
        out = net(x).detach().zero_()

    Fix: .detach() (which raises where this is wrong), or out-of-place operations.
    """

    code = "GRAD017"
    words = (".data.",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report it on names that hold the output of a module."""
        for call in module.method_calls(*CHANGES):
            data = call.func.value if isinstance(call.func, ast.Attribute) else None
            if isinstance(data, ast.Attribute) and data.attr == "data" and isinstance(data.value, ast.Name):
                values = module.definitions(data.value)
                if values and all(
                    isinstance(each, ast.Call) and module.kind(each.func) == "module" for each in values
                ):
                    yield At(call, "The output is changed behind autograd's back.", RISK)
