# SPDX-License-Identifier: Apache-2.0
"""A hinge loss that pushes real and generated examples the same way."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted
from truestep.doctor.source.terms import terms_of, value_here
from truestep.doctor.source.values import constant


class HingeOneSided(SourceCheck):
    """The two hinge terms of a discriminator have the same sign within: both scores are pushed down, or both up.

    Why: real and generated examples are not told apart; the discriminator learns one score for all.

    Bad:
        def hinge(real, fake):
            loss_real = F.relu(1.0 + real).mean()
            loss_fake = F.relu(1.0 + fake).mean()
            return loss_real + loss_fake  # here

        hinge(net(x), net(x + 1)).backward()

    Good:
        def hinge(real, fake):
            loss_real = F.relu(1.0 - real).mean()
            loss_fake = F.relu(1.0 + fake).mean()
            return loss_real + loss_fake

        hinge(net(x), net(x + 1)).backward()

    Fix: relu(1 - real) and relu(1 + fake).
    """

    code = "LOSS043"
    words = ("relu", "clamp")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a sum of two averages of `relu(1 + score)`, or of `relu(1 - score)`, of different scores."""
        told: set[ast.AST] = set()
        for node in module.all(ast.BinOp):
            if not isinstance(node.op, ast.Add) or told & set(module.ancestors(node)):
                continue
            hinges = [
                _hinge(module, each.node)
                for each in terms_of(module, node)
                if each.averaged and each.sign > 0
            ]
            found = [each for each in hinges if each is not None]
            if len(found) == len(hinges) == 2 and found[0][0] == found[1][0] and found[0][1] != found[1][1]:
                told.add(node)
                yield At(node, "Both hinge terms push their scores the same way.", RISK)


def _hinge(module: SourceModule, node: ast.expr) -> tuple[int, str] | None:
    """Return the sign and the name of the score of `relu(1 + score)`."""
    if not isinstance(node, ast.Call):
        return None
    method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    name = module.qualify(node.func) or method
    inner = node.args[0] if node.args else None
    if name.endswith("clamp") and isinstance(node.func, ast.Attribute) and name == "clamp":
        inner = node.func.value
    elif not name.endswith("relu"):
        return None
    if isinstance(inner, ast.Name):
        inner = value_here(module, inner) or inner
    if not isinstance(inner, ast.BinOp) or not isinstance(inner.op, ast.Add | ast.Sub):
        return None
    for margin, score in ((inner.left, inner.right), (inner.right, inner.left)):
        if constant(margin) == 1 and (place := _score(score)) is not None:
            turned = isinstance(inner.op, ast.Sub) and score is inner.right
            return (-1 if turned else 1) * (-1 if isinstance(score, ast.UnaryOp) else 1), place
    return None


def _score(node: ast.expr) -> str | None:
    inner = node.operand if isinstance(node, ast.UnaryOp) else node
    return dotted(inner) or (ast.unparse(inner) if isinstance(inner, ast.Call) else None)
