# SPDX-License-Identifier: Apache-2.0
"""is_available without its parentheses."""

import ast
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import ADVICE, BUG, At, SourceCheck
from truestep.doctor.library.functions import functions
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.rewriting import Edits, insert_behind

QUESTIONS = functions("asks the machine")
_PUT_OFF = functions("leaves CUDA alone without it")


class AvailabilityNotAsked(SourceCheck):
    """torch.cuda.is_available stands in a condition without being called.

    Why: a function is always true: the branch for machines without a GPU is never taken.

    Bad:
        device = "cuda" if torch.cuda.is_available else "cpu"  # here

    Good:
        device = "cuda" if torch.cuda.is_available() else "cpu"

    Fix: add the parentheses.

    Evidence: 186 repositories: said 3 times, not judged; beds A, B, D, G, K, L, N, P, S, T, U, V, X: 38 true, 4
    debatable, 6 false.
    """

    code = "DEV006"
    words = ("is_available", "is_initialized", "is_bf16_supported", "is_grad_enabled")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report such a function where its truth is asked."""
        for node in module.all(ast.Attribute, ast.Name):
            if self._is_condition(module, node) and module.qualify(node) in QUESTIONS:
                text = f"{ast.unparse(node)} is not called: a function is always true."
                yield At(
                    node, text, ADVICE if _is_ignored_without_gpu(module, module.statement(node)) else BUG
                )

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Call it."""
        return [insert_behind(module, node, "()")]

    def _is_condition(self, module: SourceModule, node: ast.expr) -> bool:
        parent = module.parents[node]
        if isinstance(parent, (ast.If, ast.IfExp, ast.While, ast.Assert)):
            return parent.test is node
        return isinstance(parent, ast.BoolOp) or (
            isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not)
        )


def _is_ignored_without_gpu(module: SourceModule, tested: ast.stmt) -> bool:
    """Tell a branch of what torch passes over where there is no GPU: seeds of CUDA, and how its kernels are chosen."""
    return (
        isinstance(tested, ast.If)
        and not tested.orelse
        and all(
            (
                isinstance(each, ast.Expr)
                and module.qualify(getattr(each.value, "func", each.value)) in _PUT_OFF
            )
            or (
                isinstance(each, ast.Assign)
                and (module.qualify(each.targets[0]) or "").startswith("torch.backends.")
            )
            for each in tested.body
        )
    )
