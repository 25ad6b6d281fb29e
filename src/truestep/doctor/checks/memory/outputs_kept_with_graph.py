# SPDX-License-Identifier: Apache-2.0
"""Outputs collected with their graph in a hook."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import ADVICE, RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import walk


class OutputsKeptWithGraph(SourceCheck):
    """A forward hook stores outputs without detach().

    Why: each stored output keeps the graph that made it.

    Bad:
        feats = []
        handle = net.fc.register_forward_hook(lambda m, i, o: feats.append(o))  # here

    Good:
        feats = []
        handle = net.fc.register_forward_hook(lambda m, i, o: feats.append(o.detach()))

    Fix: store o.detach(); remove the hook in a finally.
    """

    code = "MEM002"
    words = ("register_forward_hook",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a hook function that appends or stores its bare output."""
        for call in module.method_calls("register_forward_hook"):
            function = module.function_named(call.args[0]) if call.args else None
            parameters = [each.arg for each in function.args.args] if function is not None else []
            if function is None or len(parameters) < 3:
                continue
            kept = [each for each in walk(function) if _is_stored(each, parameters[-1])]
            if kept:
                severity = RISK if any(_grows(module, each) for each in kept) else ADVICE
                yield At(call, "The hook keeps the output with its graph.", severity)


def _is_stored(node: ast.AST, output: str) -> bool:
    """Tell `feats.append(output)` and `feats[name] = output`."""
    match node:
        case ast.Call(func=ast.Attribute(attr="append"), args=[ast.Name(id=name), *_]):
            return name == output
        case ast.Assign(targets=[ast.Subscript() | ast.Attribute(), *_], value=ast.Name(id=name)):
            return name == output
    return False


def _grows(module: SourceModule, kept: ast.AST) -> bool:
    """Tell a list that lives on and that nothing empties; one place for each layer holds the last output alone."""
    if not isinstance(kept, ast.Call) or not isinstance(kept.func, ast.Attribute):
        return False
    kept_in = kept.func.value
    if isinstance(kept_in, ast.Name):  # of a function: it ends with the call
        made = [each for each in module.bindings(kept_in) if each.how == "assign"]
        return any(module.scope(each.node) is module.tree for each in made) and not _is_emptied(
            module, kept_in.id
        )
    return isinstance(kept_in, ast.Attribute) and not _is_emptied(module, kept_in.attr)


def _is_emptied(module: SourceModule, name: str) -> bool:
    """Tell `feats.clear()`, `feats.pop()`, and a new value given in a function that is no constructor."""
    cleared = [
        each.func.value
        for each in module.method_calls("clear", "pop")
        if isinstance(each.func, ast.Attribute)
    ]
    cleared += [target for each in module.all(ast.Delete) for target in each.targets]
    for store in module.all(ast.Assign):
        function = module.enclosing(store, ast.FunctionDef)
        if function is not None and function.name != "__init__":
            cleared += store.targets
    names = [each.value if isinstance(each, ast.Subscript) else each for each in cleared]
    return any(getattr(each, "attr", getattr(each, "id", "")) == name for each in names)
