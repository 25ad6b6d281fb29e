# SPDX-License-Identifier: Apache-2.0
"""A test that chooses between train() and train()."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted
from truestep.doctor.source.values import constant


class ModeAlikeOnBothWays(SourceCheck):
    """Both branches of a condition put a model into the same mode, and one of them does nothing else.

    Why: the condition was to choose the mode, and has no say in it: dropout and batch norm are not what it asks for.

    Bad:
        if freeze_dropout:
            net.train()  # here
            net.requires_grad_(True)
        else:
            net.train()

    Good:
        if freeze_dropout:
            net.eval()
            net.requires_grad_(True)
        else:
            net.train()

    Fix: net.eval() in the branch that needs it, or net.train() before the condition.
    """

    code = "EVAL050"
    words = (".train(", ".eval(")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report such a pair of branches, neither of which sets the other mode of that model."""
        for node in module.all(ast.If) if module.method_calls("train", "eval") else ():
            if not node.orelse:
                continue
            first, second = _modes(node.body), _modes(node.orelse)
            for subject, (mode, call) in first.items():
                other = second.get(subject)
                alone = min(len(node.body), len(node.orelse)) == 1
                if (
                    alone
                    and other is not None
                    and other[0] is mode
                    and mode is not None
                    and _is_model(module, call)
                ):
                    text = f"Both branches call {ast.unparse(call)}: the condition does not choose the mode."
                    yield At(call, text, RISK)


def _modes(block: list[ast.stmt]) -> dict[str, tuple[bool | None, ast.Call]]:
    """Return the mode that a block leaves each model in, by its text; None for what is asked at run time."""
    found: dict[str, tuple[bool | None, ast.Call]] = {}
    for each in block:
        call = each.value if isinstance(each, ast.Expr) else None
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        subject = dotted(call.func.value)
        if subject is not None and call.func.attr == "eval" and not call.args:
            found[subject] = False, call
        elif subject is not None and call.func.attr == "train" and not call.keywords:
            given = constant(call.args[0]) if call.args else True
            found[subject] = given if isinstance(given, bool) else None, call
    return found


def _is_model(module: SourceModule, call: ast.Call) -> bool:
    assert isinstance(call.func, ast.Attribute)
    return module.kind(call.func.value) in ("module", "ddp") and len(call.args) <= 1
