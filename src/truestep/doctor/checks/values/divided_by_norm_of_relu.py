# SPDX-License-Identifier: Apache-2.0
"""A vector that may be zero, divided by its length."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.library.operations import operations
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.values import argument, constant, last_operations, seen_through

_MAY_BE_ZERO = operations(numbers="rectified dropped")


class DividedByNormOfRelu(SourceCheck):
    """What a ReLU gave is divided by its norm.

    Why: where all of it is zero the result is NaN, and after one such example so are the weights.

    Bad:
        hidden = F.relu(net(x))
        embedding = hidden / hidden.norm(dim=1, keepdim=True)  # here

    Good:
        hidden = F.relu(net(x))
        embedding = F.normalize(hidden, dim=1)

    Fix: F.normalize(x, dim=1), which keeps a small number below.
    """

    code = "VALUE016"
    words = ("relu", "ReLU")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report `x / x.norm(...)` where x is what a ReLU gave, on every way."""
        for node in module.all(ast.BinOp):
            if not isinstance(node.op, ast.Div):
                continue
            vector = _vector_of_norm(module, seen_through(module, node.right))
            if vector is not None and ast.unparse(vector) == ast.unparse(node.left):
                made = last_operations(module, vector)
                if made and made <= _MAY_BE_ZERO:
                    text = f"{ast.unparse(node.left)!r} can be all zeros behind a ReLU: 0 / 0 is NaN."
                    yield At(node, text, RISK)


def _vector_of_norm(module: SourceModule, node: ast.expr | None) -> ast.expr | None:
    """Return x for `x.norm(dim=1)`, `torch.norm(x, dim=1)` and `torch.linalg.norm(x, dim=1)`."""
    if not isinstance(node, ast.Call):
        return None
    called = module.qualify(node.func)
    if called in ("torch.norm", "torch.linalg.norm", "torch.linalg.vector_norm"):
        kept = constant(argument(node, None, "keepdim"))
        return node.args[0] if node.args and kept is not False else None
    method = isinstance(node.func, ast.Attribute) and node.func.attr == "norm"
    return node.func.value if method and isinstance(node.func, ast.Attribute) else None
