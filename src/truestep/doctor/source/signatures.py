# SPDX-License-Identifier: Apache-2.0
"""What a function takes and gives back, by the names that its author chose."""

import ast

from truestep.doctor.source.container_unpacking import is_bare_constant
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function, dotted_name, walk


def own_name(node: ast.AST) -> str | None:
    """Return the last part of a name or a chain of attributes, as its author would say it."""
    path = dotted_name(node)
    return path.rsplit(".", 1)[-1].strip("_") if path else None


def returns_nothing(module: SourceModule, function: Function) -> bool:
    """Tell a function that does something and gives no value back from a stub, a generator and what heirs replace."""
    if isinstance(function, ast.Lambda) or function.decorator_list or module.functions.returns(function):
        return False
    own = [each for each in walk(function) if module.resolver.index.scope_of.get(each) is function]
    if any(isinstance(each, (ast.Yield, ast.YieldFrom, ast.Raise)) for each in own):
        return False
    owner = module.resolver.index.parents.get(function)
    heirs = module.classes.subclasses_of(owner) if isinstance(owner, ast.ClassDef) else []
    if any(function.name in module.classes.attributes(each) for each in heirs):
        return False
    return any(
        not isinstance(each, (ast.Pass, ast.Expr, ast.Return)) or _is_call_statement(each)
        for each in function.body
    )


def _is_call_statement(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, (ast.Call, ast.Await))


def only_raises(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Tell a method whose body only raises: whoever derives from its class says what it does."""
    body = [each for each in function.body if not is_bare_constant(each)]
    return len(body) == 1 and isinstance(body[0], ast.Raise)


def is_left_open(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Tell a body that only raises, passes or is `...`: another one is meant to stand for it."""
    body = [each for each in function.body if not is_bare_constant(each)]
    return all(isinstance(each, (ast.Raise, ast.Pass)) for each in body)
