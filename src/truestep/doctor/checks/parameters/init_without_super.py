# SPDX-License-Identifier: Apache-2.0
"""A module that never calls super().__init__()."""

import ast
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import is_self, walk
from truestep.doctor.source.rewriting import Edits, before


class InitWithoutSuper(SourceCheck):
    """A module's __init__ sets layers without calling super().__init__().

    Why: torch raises AttributeError at the first layer: there is nowhere to register it.

    Bad:
        class Net(nn.Module):
            def __init__(self):  # here
                self.head = nn.Linear(3, 1)

    Good:
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.head = nn.Linear(3, 1)

    Fix: call super().__init__() first.

    Evidence: 186 repositories, beds C, E, F, H, K, L, M, N, P, Q, S, T, U, W, X: 14 true, 9 debatable, 3 false.
    """

    code = "PARAM004"
    holds_anywhere = True
    words = ("__init__",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report an __init__ of a direct subclass of nn.Module in which nothing calls another __init__."""
        for owner in module.kinds.classes_of("module"):
            direct = len(owner.bases) == 1 and module.qualify(owner.bases[0]) == "torch.nn.Module"
            made = module.classes.method(owner, "__init__")
            if direct and made in owner.body and made is not None and not isinstance(made, ast.Lambda):
                own = {each.name for each in owner.body if isinstance(each, ast.FunctionDef)}
                is_plain = "forward" not in own and not module.classes.subclasses_of(owner)
                if ("__call__" in own or is_plain) and not _sets_layers(module, owner, made):
                    continue  # of torch's own it needs nothing: plain attributes can be set, and it calls its own methods
                calls = [node.func for node in walk(made) if isinstance(node, ast.Call)]
                if not any(
                    isinstance(each, ast.Attribute) and each.attr in ("__init__", "__setattr__")
                    for each in calls
                ):
                    sets = any(
                        isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
                        for node in walk(made)
                    )
                    if sets:
                        yield At(made, f"{owner.name}.__init__ never calls super().__init__().")

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Call it first."""
        body = node.body[1:] if ast.get_docstring(node) is not None else node.body
        return [before(module, body[0], "super().__init__()")]


def _sets_layers(module: SourceModule, owner: ast.ClassDef, made: ast.AST) -> bool:
    """Tell whether a module of torch.nn or of the program is made there, or something is held that the class calls."""
    calls = [each for each in walk(made) if isinstance(each, ast.Call)]
    held = {
        each.attr for each in walk(made) if isinstance(each, ast.Attribute) and _is_self_attribute_store(each)
    }
    called = [each.func for each in walk(owner) if isinstance(each, ast.Call)]
    return any(
        isinstance(each, ast.Attribute) and _is_self_attribute(each) and each.attr in held for each in called
    ) or any(
        (module.qualify(each.func) or "").startswith("torch.nn.") or module.classes.of(each) is not None
        for each in calls
        if not _goes_into_list(module, each)
    )


def _goes_into_list(module: SourceModule, made: ast.Call) -> bool:
    """Tell a module that only a list takes: an attribute that holds a list can be set without torch's __init__."""
    above = module.parents[made]
    if isinstance(above, ast.Assign) and isinstance(above.targets[0], ast.Name):
        name, scope = above.targets[0].id, module.scope(made)
        reads = [each for each in module.reads(name) if module.scope(each) is scope]
        return bool(reads) and all(_is_list_element(module, each) for each in reads)
    return _is_list_element(module, made)


def _is_list_element(module: SourceModule, node: ast.AST) -> bool:
    """Tell what stands in a list, a table or a comprehension, or is appended to one."""
    match module.parents[node]:
        case ast.List() | ast.Tuple() | ast.ListComp() | ast.Dict() | ast.DictComp():
            display = module.parents[module.parents[node]]
            return not isinstance(display, (ast.Call, ast.Starred, ast.keyword))
        case ast.Call(func=ast.Attribute(attr="append")):
            return True
    return False


def _is_self_attribute_store(place: ast.Attribute) -> bool:
    return isinstance(place.ctx, ast.Store) and _is_self_attribute(place)


def _is_self_attribute(place: ast.Attribute) -> bool:
    return is_self(place.value)
