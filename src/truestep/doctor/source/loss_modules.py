# SPDX-License-Identifier: Apache-2.0
"""Which modules a loss was computed with, through names, unpacked results and loops over them."""

import ast
import builtins

from truestep.doctor.library.operations import CUTS, MAKERS
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted_name, given_to
from truestep.doctor.source.signatures import own_name
from truestep.doctor.source.value_origins import constant

_OFF = {"no_grad", "inference_mode"}
_BUILTINS = frozenset(dir(builtins))
_MOST = 60  # expressions that are looked at for one loss


def calls_with_graph(module: SourceModule, loss: ast.expr) -> list[ast.Call]:
    """Return the calls of this function that a value is computed from, where a gradient may go back through them."""
    scope = module.scope(loss)
    found: list[ast.Call] = []
    seen: set[ast.expr] = set()
    waiting = [loss]
    while waiting and len(seen) < _MOST:
        current = waiting.pop(0)
        if current in seen:
            continue
        seen.add(current)
        for each in _parts_with_graph(current):
            if isinstance(each, ast.Call):
                found.append(each)
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load):
                bindings = module.resolver.reaching(each)
                values = [binding.value for binding in bindings if not is_without_grad(module, binding.node)]
                waiting += [value for value in values if value is not None and module.scope(value) is scope]
            elif isinstance(each, ast.Attribute):
                own = [value for value in module.definitions(each) if value and module.scope(value) is scope]
                waiting += [value for value in own if not is_without_grad(module, value)]
    return found


def is_model_call(module: SourceModule, call: ast.Call) -> bool:
    """Tell whether a call applies a module, by what it is or by what else is done with it."""
    if dotted_name(call.func) is None or module.qualify(call.func) in _BUILTINS:
        return False
    return module.kind(call.func) in ("module", "ddp") or module.kinds.is_used_as(call.func, "module")


def _parts_with_graph(node: ast.AST) -> list[ast.AST]:
    """Return the parts of an expression through which a gradient may go."""
    if _is_graph_cut(node.func if isinstance(node, ast.Call) else node):
        return []
    inner = [part for child in ast.iter_child_nodes(node) for part in _parts_with_graph(child)]
    return [node, *inner]


def _is_graph_cut(node: ast.AST) -> bool:
    """Tell `x.detach`, `x.shape` and `torch.zeros_like`: what they give has no way back to what they were given."""
    if not isinstance(node, ast.Attribute):
        return False
    made_anew = isinstance(node.value, ast.Name) and node.value.id == "torch" and node.attr in MAKERS
    return node.attr in CUTS or made_anew


def is_without_grad(module: SourceModule, node: ast.AST) -> bool:
    """Tell whether something is computed where gradients are off."""
    for above in module.ancestors(node):
        if isinstance(above, ast.With) and any(is_no_grad_manager(each.context_expr) for each in above.items):
            return True
        if isinstance(above, ast.FunctionDef):
            return any(is_no_grad_manager(each) for each in above.decorator_list)
    return False


def is_no_grad_manager(node: ast.expr) -> bool:
    """Tell a manager or a decorator under which gradients are off: `no_grad()`, `set_grad_enabled(False)`."""
    name = own_name(node.func if isinstance(node, ast.Call) else node)
    given = [constant(each) for each in given_to(node)] if isinstance(node, ast.Call) else []
    return name in _OFF or (name == "set_grad_enabled" and given == [False])
