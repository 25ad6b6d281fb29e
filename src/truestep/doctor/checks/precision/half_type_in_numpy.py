# SPDX-License-Identifier: Apache-2.0
"""bfloat16 handed to NumPy."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.resolving import MAX_DEPTH
from truestep.doctor.source.values import is_call_of, seen_through


class HalfTypeInNumpy(SourceCheck):
    """A bfloat16 tensor is turned into a NumPy array.

    Why: NumPy has no bfloat16: TypeError.

    Bad:
        out = net(x).detach().bfloat16().numpy()  # here

    Good:
        out = net(x).detach().float().cpu().numpy()

    Fix: t.detach().float().cpu().numpy().
    """

    code = "AMP006"
    words = ("bfloat16",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report .numpy() on a chain whose last conversion is to bfloat16."""
        for call in module.method_calls("numpy"):
            node: ast.expr | None = call
            for _ in range(MAX_DEPTH):
                if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                    break
                node = seen_through(module, node.func.value)
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                    if node.func.attr in ("float", "double", "half"):
                        break
                    if node.func.attr == "bfloat16" or _to_bfloat16(module, node):
                        yield At(call, "bfloat16 has no NumPy type: this raises TypeError.")
                        break


def _to_bfloat16(module: SourceModule, call: ast.Call) -> bool:
    given = [*call.args, *(word.value for word in call.keywords)]
    converts = (
        isinstance(call.func, ast.Attribute) and call.func.attr == "to" and not is_call_of(module, call, "")
    )
    return converts and any(module.qualify(each) == "torch.bfloat16" for each in given)
