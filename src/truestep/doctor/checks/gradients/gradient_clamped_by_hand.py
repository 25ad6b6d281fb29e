# SPDX-License-Identifier: Apache-2.0
"""Clamping in place of clipping."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import ADVICE, At, SourceCheck
from truestep.doctor.source.module import SourceModule


class GradientClampedByHand(SourceCheck):
    """The gradients of all parameters are clamped in a hand-written loop.

    Why: it turns the direction ([10, 1] becomes [1, 1]) and raises for parameters without a gradient.

    Bad:
        for p in net.parameters():
            p.grad.data.clamp_(-5, 5)  # here

    Good:
        nn.utils.clip_grad_norm_(net.parameters(), 5.0)

    Fix: torch.nn.utils.clip_grad_norm_, or clip_grad_value_ where the clamp is meant.
    """

    code = "GRAD018"
    words = ("clamp_",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report clamp_ of a .grad."""
        for call in module.method_calls("clamp_"):
            base = call.func.value if isinstance(call.func, ast.Attribute) else None
            if isinstance(base, ast.Attribute) and base.attr == "data":
                base = base.value
            if isinstance(base, ast.Attribute) and base.attr == "grad":
                yield At(call, "Each gradient entry is clamped by hand, which turns the direction.", ADVICE)
