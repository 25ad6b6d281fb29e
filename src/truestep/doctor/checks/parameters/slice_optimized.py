# SPDX-License-Identifier: Apache-2.0
"""An optimizer of slices."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.values import argument


class SliceOptimized(SourceCheck):
    """An optimizer is given a slice of a tensor.

    Why: a slice is a tensor of its own: it gets no gradient, and nothing trains what it was cut from.

    Bad:
        weights = torch.randn(4, 2)
        opt = torch.optim.SGD([weights[:, 0]], lr=0.1)  # here

    Good:
        weights = torch.randn(4, 2, requires_grad=True)
        opt = torch.optim.SGD([weights], lr=0.1)

    Fix: give it the whole tensor, made with requires_grad=True.
    """

    code = "PARAM033"
    words = ("optim",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report `x[:, 0]` in an optimizer's list; `nets[0]` and lists that are cut are no tensors."""
        for name, call in module.calls_matching("torch.optim."):
            given = argument(call, 0, "params") if name.count(".") == 2 else None
            for each in given.elts if isinstance(given, ast.List | ast.Tuple) else ():
                if isinstance(each, ast.Subscript) and isinstance(each.slice, ast.Tuple | ast.Slice):
                    text = ast.unparse(each)
                    yield At(call, f"{text} is a new tensor: {ast.unparse(each.value)} is never trained.")
                    break
