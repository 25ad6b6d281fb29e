# SPDX-License-Identifier: Apache-2.0
"""`for x in tensors: x = x.to(device)`."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.library.operations import operations
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted, names_in, walk
from truestep.doctor.source.uses import uses_of

_MOVES = operations(numbers="moved rounded home")  # of a module: where it is
_OF_MODULES = {"parameters", "state_dict", "load_state_dict"}


class LoopVariableRebound(SourceCheck):
    """The items of a list or dict are changed under the loop's own name, which nothing reads.

    Why: the name is given a new value; what stands in the list or dict stays as it was.

    Bad:
        def moved(batch, device):
            for key, value in batch.items():
                value = value.to(device)  # here
            return batch

    Good:
        def moved(batch, device):
            for key, value in batch.items():
                batch[key] = value.to(device)
            return batch

    Fix: batch[key] = value.to(device), or make a new list or dict.
    """

    code = "VALUE018"

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report an assignment to the item of a loop, computed from it and never read."""
        if "torch" not in module.text:
            return
        for function in module.functions:
            for node in uses_of(module, function).unread():
                loop = module.parents[node]
                while isinstance(loop, ast.With):
                    loop = module.parents[loop]
                if not isinstance(loop, ast.For) or _is_used(loop, node):
                    continue
                container = _container(loop)
                if container is None or (_is_moved(node) and _holds_modules(module, container)):
                    continue
                if _is_kept(module, loop, container):
                    name = names_in(node.targets[0])[0]
                    yield At(node, f"This gives {name!r} a new value; {container} keeps the old.")


def _is_moved(node: ast.Assign) -> bool:
    called = node.value.func if isinstance(node.value, ast.Call) else None
    return isinstance(called, ast.Attribute) and called.attr in _MOVES


def _holds_modules(module: SourceModule, container: str) -> bool:
    """Tell a list of modules, which are moved where they are: one is put in, or an item is asked for its parameters."""
    for use in module.reads(container):
        above = module.parents[use]
        call = module.parents[above]
        if (
            isinstance(above, ast.Attribute)
            and isinstance(call, ast.Call)
            and call.func is above
            and call.args
        ):
            if above.attr == "append" and module.kind(call.args[0]) == "module":
                return True
        if isinstance(above, ast.Subscript) and set(_asked_of(module, above)) & _OF_MODULES:
            return True
    return False


def _asked_of(module: SourceModule, node: ast.expr) -> Iterator[str]:
    above = module.parents[node]
    while isinstance(above, ast.Attribute | ast.Subscript):
        if isinstance(above, ast.Attribute):
            yield above.attr
        above = module.parents[above]


def _is_used(loop: ast.For, node: ast.Assign) -> bool:
    """Tell whether the new value is no item's, or something else in the loop reads or stores the item."""
    names = names_in(node.targets[0])
    if not names or names[0] not in names_in(loop.target) or not _computed_from(names[0], node.value):
        return True
    own = set(walk(node))
    others = [
        each for part in loop.body for each in walk(part) if isinstance(each, ast.Name) and each not in own
    ]
    return any(each.id == names[0] for each in others)


def _container(loop: ast.For) -> str | None:
    """Return the list, or the dict of `.items()` and `.values()`, that a loop goes through one item at a time."""
    over, target = loop.iter, loop.target
    if isinstance(over, ast.Call) and isinstance(over.func, ast.Attribute) and not over.args:
        pairs = over.func.attr == "items" and isinstance(target, ast.Tuple)
        return dotted(over.func.value) if pairs or over.func.attr == "values" else None
    if isinstance(over, ast.Call) and dotted(over.func) == "enumerate" and isinstance(target, ast.Tuple):
        over, target = over.args[0] if over.args else over, target.elts[-1]
    return dotted(over) if isinstance(target, ast.Name) else None


def _is_kept(module: SourceModule, loop: ast.For, container: str) -> bool:
    """Tell whether the container is used behind the loop, or is not of this function alone; a loader makes its items anew."""
    nodes = [each for each in walk(loop.iter) if isinstance(each, ast.expr) and dotted(each) == container]
    if not nodes or module.kind(nodes[0]) is not None:
        return False
    later = any(each.lineno > (loop.end_lineno or 0) for each in module.reads(container))
    return later or container.startswith("self.")


def _computed_from(name: str, value: ast.expr) -> bool:
    return isinstance(value, ast.Call | ast.BinOp) and any(
        isinstance(each, ast.Name) and each.id == name for each in walk(value)
    )
