# SPDX-License-Identifier: Apache-2.0
"""Where a value goes within one function: what is computed from it, through names, lists and loops."""

import ast
import re

from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import walk
from truestep.doctor.source.uses import names_read

# what gives back no part of the graph, or nothing that a loss could be made of
_CUTS = (
    "detach", "item", "tolist", "numpy", "backward", "size", "dim", "shape", "append", "update", "extend", "lt", "gt",
    "le", "ge", "eq", "ne", "argmax", "argmin", "argsort", "sign", "sgn", "bool", "long", "int",
)  # fmt: skip
_HANDS_ON = ("sum", "zip", "list", "tuple", "enumerate", "reversed", "map")
_COEFFICIENT = re.compile(r"lambda|weight|coef|beta|gamma|alpha|scale|hparams|penalty|reg", re.IGNORECASE)
_KEEPS = ("append", "extend", "insert")


def flows_to(module: SourceModule, value: ast.expr) -> set[ast.AST]:
    """Return the expressions of the function around that are computed from a value, and get a gradient through it alone."""
    scope = module.scope(value)
    names: set[str] = set()
    found: set[ast.AST] = set(_above(module, value))
    statements = [each for each in walk(scope) if isinstance(each, ast.stmt) and module.scope(each) is scope]
    before = -1
    while before != len(names) + len(found):
        before = len(names) + len(found)
        for node in statements:
            for each in _parts(node):
                if isinstance(each, ast.Name) and each.id in names and isinstance(each.ctx, ast.Load):
                    found.add(each)
                    found |= set(_above(module, each))
            names |= _names_filled(node, found)
    return found


def _above(module: SourceModule, node: ast.AST) -> list[ast.AST]:
    """Return what an expression is part of, as far as its gradient alone decides about the whole's."""
    found: list[ast.AST] = [node]
    current = node
    while isinstance(parent := module.parents.get(current), ast.expr | ast.keyword | ast.comprehension):
        if not _hands_on(module, parent, current):
            break
        found.append(parent)
        current = parent
    return found


def _hands_on(module: SourceModule, parent: ast.AST, node: ast.AST) -> bool:
    """Tell whether a value flows into what it is part of; a factor of something else is only its weight."""
    match parent:
        case ast.Attribute():
            return parent.attr not in _CUTS
        case ast.Compare() | ast.Lambda() | ast.IfExp():
            return isinstance(parent, ast.IfExp) and parent.test is not node
        case ast.Subscript():
            return parent.value is node
        case ast.BinOp(op=ast.Mult() | ast.Div() | ast.MatMult()):
            return _is_coefficient(parent.right if parent.left is node else parent.left)
        case ast.Call() if parent.func is not node:
            name = module.qualify(parent.func) or ""
            return name in _HANDS_ON or name.startswith("torch.")
    return True


def _is_coefficient(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant | ast.UnaryOp) or bool(_COEFFICIENT.search(ast.unparse(node)))


def _parts(node: ast.stmt) -> list[ast.AST]:
    """Return the expressions of a statement, without the statements within it."""
    own = [each for each in ast.iter_child_nodes(node) if not isinstance(each, ast.stmt | ast.ExceptHandler)]
    return [each for part in own for each in walk(part)]


def _names_filled(node: ast.stmt, found: set[ast.AST]) -> set[str]:
    """Return the names that a statement gives a value that flows, and the lists it is put into."""
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign) and node.value in found:
        targets = node.targets
    elif (isinstance(node, ast.AnnAssign | ast.AugAssign) and node.value in found) or (
        isinstance(node, ast.For) and node.iter in found
    ):
        targets = [node.target]
    elif (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Attribute)
    ):
        call = node.value
        if call.func.attr in _KEEPS and any(each in found for each in call.args):  # type: ignore[attr-defined]
            return set(names_read(call.func))
    return {
        each.id
        for target in targets
        for each in walk(target)
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    }
