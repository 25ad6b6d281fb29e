# SPDX-License-Identifier: Apache-2.0
"""What the variable of a loop stands for, one after the other."""

import ast

from truestep.doctor.source.resolving import Resolver


def iterated_items(resolver: Resolver, node: ast.expr) -> list[ast.expr]:
    """Return what the variable of a loop over a list stands for, one after the other; nothing where that is not written."""
    source = iterated_rows_source(resolver, node)
    made = resolver.definitions(source) if isinstance(source, (ast.Name, ast.Attribute)) else [source]
    found: list[ast.expr] = []
    for each in made:
        if isinstance(each, (ast.ListComp, ast.GeneratorExp)):
            found.append(each.elt)
        elif (
            isinstance(each, (ast.List, ast.Tuple))
            and each.elts
            and not any(isinstance(one, ast.Starred) for one in each.elts)
        ):
            found += each.elts
        else:
            return []
    return found


def iterated_rows_source(resolver: Resolver, node: ast.expr) -> ast.expr | None:
    """Return x for the variable of `for row in x`, of `zip(x, y)` and of `enumerate(x)`; None for anything else."""
    bindings = resolver.reaching(node) if isinstance(node, ast.Name) else []
    if len(bindings) != 1 or bindings[0].how != "for" or not isinstance(node, ast.Name):
        return None
    target, source = bindings[0].node, bindings[0].value
    places: list[int] = []
    while isinstance(above := resolver.index.parents.get(target), (ast.Tuple, ast.List)):
        places.insert(0, above.elts.index(target))  # type: ignore[arg-type]
        target = above
    for place in places:
        name = resolver.names.qualify(source.func) if isinstance(source, ast.Call) else None
        place -= name == "enumerate"
        known = isinstance(source, ast.Call) and name in ("zip", "enumerate")
        if not isinstance(source, ast.Call) or not known or not 0 <= place < len(source.args):
            return None
        source = source.args[place]
    return source
