# SPDX-License-Identifier: Apache-2.0
"""The loops of a file that train, and what counts their iterations, under whatever name."""

import ast
import re
from collections.abc import Set as AbstractSet

from truestep.doctor.source.memoized_walk import asked_once
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted_name, last_part, walk

_COUNTS = ("range", "enumerate", "trange", "count")
_NAMED = re.compile(r"^(global_|n_|num_)?(epoch|step|iteration|iter)(_num)?$")


@asked_once(frozenset())
def counted_loops(module: SourceModule, node: ast.expr, depth: int = 0) -> AbstractSet[ast.AST] | None:
    """Return the loops whose iterations a value counts, none for another value; None where it is out of sight."""
    match node:
        case ast.BinOp(op=ast.Add() | ast.Sub(), right=ast.Constant()):
            return counted_loops(module, node.left, depth)
        case ast.BinOp(op=ast.Add(), left=ast.Constant()):
            return counted_loops(module, node.right, depth)
        case ast.Call(func=ast.Name(id="int"), args=[inner]):
            return counted_loops(module, inner, depth)
        case ast.Name() | ast.Attribute():
            return _counted_by_name(module, node, depth)
    return set()


def is_named_as_counter(name: str) -> bool:
    """Tell `epoch`, `global_step`, `iter_num`: for what is out of sight."""
    return bool(_NAMED.match(name))


def _counted_by_name(module: SourceModule, node: ast.Name | ast.Attribute, depth: int) -> set[ast.AST] | None:
    found = _loops_adding_to(module, node) | _loops_driving(module, node)
    if found:
        return found
    values = module.definitions(node)
    if not values or None in values:
        return None
    parts = [counted_loops(module, each, depth + 1) for each in values if each is not None]
    known = [each for each in parts if each is not None]
    return set[ast.AST]().union(*known) if known or not parts else None


def _loops_adding_to(module: SourceModule, node: ast.expr) -> set[ast.AST]:
    """Return the loops around `step += 1`."""
    home, place = module.home(node), dotted_name(node)
    added = [
        each for each in home.stores if isinstance(each, ast.AugAssign) and dotted_name(each.target) == place
    ]
    mine = [
        each
        for each in added
        if isinstance(each.op, ast.Add)
        and isinstance(each.value, ast.Constant)
        and (isinstance(node, ast.Attribute) or home.scope(each) is home.scope(node))
    ]
    return {
        above for each in mine for above in home.ancestors(each) if isinstance(above, (ast.For, ast.While))
    }


def _loops_driving(module: SourceModule, node: ast.expr) -> set[ast.AST]:
    """Return the loops that give a name the numbers one after the other."""
    loops = (
        [each.node for each in module.names.bindings(node) if each.how == "for"]
        if isinstance(node, ast.Name)
        else []
    )
    found: set[ast.AST] = set()
    for loop in loops:
        above = loop if isinstance(loop, ast.For) else module.enclosing(loop, ast.For)
        if above is not None and _is_loop_number(above, dotted_name(node) or ""):
            found.add(above)
    return found


def _is_loop_number(loop: ast.For, name: str) -> bool:
    """Tell the name that counts: all of `for i in range(...)`, the first of `for i, x in enumerate(...)`."""
    calls = [last_part(each.func) for each in walk(loop.iter) if isinstance(each, ast.Call)]
    first = loop.target.elts[0] if isinstance(loop.target, ast.Tuple) and loop.target.elts else loop.target
    return any(each in _COUNTS for each in calls) and dotted_name(first) == name


def is_model_made_anew(module: SourceModule, loop: ast.AST, model: ast.expr) -> bool:
    """Tell whether each iteration of a loop makes the model anew: in the loop, or in the function that it calls."""
    stores = [each for each in walk(loop) if isinstance(each, (ast.Name, ast.Attribute))]
    if any(isinstance(each.ctx, ast.Store) and dotted_name(each) == dotted_name(model) for each in stores):
        return True
    scope = module.scope(model)
    made = [each for each in [model, *module.definitions(model)] if isinstance(each, ast.Call)]
    return module.scope(loop) is not scope and any(module.scope(each) is scope for each in made)
