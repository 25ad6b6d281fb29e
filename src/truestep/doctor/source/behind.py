# SPDX-License-Identifier: Apache-2.0
"""Which modules a loss was computed with, through names, unpacked results and loops over them."""

import ast
import builtins

from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted

_BUILTINS = frozenset(dir(builtins))
_MOST = 60  # expressions that are looked at for one loss


def models_behind(module: SourceModule, loss: ast.expr) -> set[str]:
    """Return the names of the modules whose calls a loss of this function is computed from, and not detached."""
    scope = module.scope(loss)
    found: set[str] = set()
    seen: set[ast.expr] = set()
    waiting = [loss]
    while waiting and len(seen) < _MOST:
        current = waiting.pop(0)
        if current in seen:
            continue
        seen.add(current)
        for each in _with_graph(current):
            if isinstance(each, ast.Call) and _is_model(module, each):
                found.add(dotted(each.func) or "")
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load):
                values = [binding.value for binding in module.resolver.reaching(each)]
                waiting += [value for value in values if value is not None and module.scope(value) is scope]
    return found


def _is_model(module: SourceModule, call: ast.Call) -> bool:
    if dotted(call.func) is None or module.qualify(call.func) in _BUILTINS:
        return False
    return module.kind(call.func) in ("module", "ddp") or module.is_used_as(call.func, "module")


def _with_graph(node: ast.AST) -> list[ast.AST]:
    """Return the parts of an expression through which a gradient may go."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("detach", "item"):
        return []
    inner = [part for child in ast.iter_child_nodes(node) for part in _with_graph(child)]
    return [node, *inner]
