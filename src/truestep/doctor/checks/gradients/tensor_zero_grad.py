# SPDX-License-Identifier: Apache-2.0
"""zero_grad() of a tensor."""

import ast
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.rewriting import Edits, SourceRewriteError, replaced, text_of
from truestep.doctor.source.tensors import is_tensor


class TensorZeroGrad(SourceCheck):
    """zero_grad() is called on a tensor.

    Why: only optimizers and modules have it: AttributeError, at the first time that the line is reached.

    Bad:
        x = torch.ones(2, requires_grad=True)
        if x.grad is not None:
            x.zero_grad()  # here

    Good:
        x = torch.ones(2, requires_grad=True)
        x.grad = None

    Fix: x.grad = None.
    """

    code = "GRAD019"
    words = ("zero_grad",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report it on a name that was made as a tensor for certain."""
        for call in module.method_calls("zero_grad"):
            base = call.func.value if isinstance(call.func, ast.Attribute) else None
            if is_tensor(module, base):
                yield At(call, "A tensor has no zero_grad(): AttributeError.")

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Set the gradient to None."""
        if not isinstance(module.parents[node], ast.Expr):
            raise SourceRewriteError
        return [replaced(module, node, f"{text_of(module, node.func.value)}.grad = None")]
