# SPDX-License-Identifier: Apache-2.0
"""Named tensors, gone since 2.13."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule

MAKERS = ("randn", "rand", "zeros", "ones", "empty", "full", "tensor", "arange")
METHODS = ("align_to", "align_as", "refine_names", "rename_")


class NamedTensors(SourceCheck):
    """Named tensors are used.

    Why: removed in torch 2.13: names= raises TypeError, the methods AttributeError.

    Bad:
        img = torch.randn(8, 3, 32, 32, names=["N", "C", "H", "W"])  # here

    Good:
        img = torch.randn(8, 3, 32, 32)  # N, C, H, W

    Fix: integer dimensions with a comment on the shape, permute, or einops.
    """

    code = "OLD005"
    words = ("names=", "align_to", "align_as", "refine_names", "rename_", "sum(", "select(")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report names= of the makers, the methods, and sum or select by a name."""
        named = False
        for call in module.calls(*(f"torch.{name}" for name in MAKERS)):
            if any(word.arg == "names" for word in call.keywords):
                named = True
                yield At(call, "names= was removed with named tensors: TypeError.")
        for call in module.method_calls(*METHODS):
            yield At(call, f"{ast.unparse(call.func).rsplit('.', 1)[-1]} was removed with named tensors.")
        for call in module.method_calls("sum", "select", "mean") if named else ():
            if call.args and isinstance(call.args[0], ast.Constant) and isinstance(call.args[0].value, str):
                yield At(call, "A dimension by its name was removed with named tensors: TypeError.")
