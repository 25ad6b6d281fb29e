# SPDX-License-Identifier: Apache-2.0
"""Layers in a Python list or dict."""

import ast
import re
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import walk
from truestep.doctor.source.rewriting import Edits, SourceRewriteError, name_of, wrapped

# layers without weights, buffers or modes
_STATELESS = re.compile(
    r"(Loss|Pool\dd|Pad\dd|(?<!PRe)LU|Sigmoid|Tanh|Softmax|Softmin|Upsample\w*|Flatten|Identity|[Ff]old|Similarity|Distance|Shuffle|Softplus|Module)$"
)


class LayersInPlainList(SourceCheck):
    """A module keeps layers in a Python list, tuple or dict.

    Why: parameters(), state_dict() and .to() don't see them: they are never trained, saved or moved.

    Bad:
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = [nn.Linear(3, 3) for _ in range(4)]  # here

    Good:
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(4)])

    Fix: nn.ModuleList, nn.ModuleDict, or nn.ParameterList for parameters.

    Evidence: corpus: 0 true, 3 false; bed B: 2 true, 0 false; 186 repositories: 2 true, 0 false.
    """

    code = "PARAM001"
    words = ("Module",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report an attribute that is a display of modules, unless it is registered elsewhere."""
        for owner in module.kinds.classes_of("module"):
            for name, bindings in module.classes.attributes(owner).items():
                for binding in bindings:
                    if (
                        binding.value is None
                        or binding.how != "assign"
                        or isinstance(module.parents[binding.node], ast.ClassDef)
                    ):
                        continue
                    held = _modules_in(module, binding.value) or _appended(module, owner, name, binding.value)
                    if held and not _registered(module, owner, name):
                        yield At(
                            binding.node,
                            f"self.{name} is a plain {_type(binding.value)}: parameters() misses its layers.",
                        )

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Register the layers."""
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.List | ast.ListComp):
            raise SourceRewriteError
        return wrapped(module, node.value, f"{name_of(module, 'torch.nn')}.ModuleList")


def _modules_in(module: SourceModule, value: ast.expr) -> bool:
    match value:
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            inner = parts
        case ast.Dict(values=parts):
            inner = parts
        case ast.ListComp(elt=part):
            inner = [part]
        case ast.DictComp(value=part):
            inner = [part]
        case _:
            return False
    return bool(inner) and all(isinstance(part, ast.Call) and _makes_module(module, part) for part in inner)


def _makes_module(module: SourceModule, call: ast.Call) -> bool:
    name = module.qualify(call.func) or ""
    if (made := module.classes.named(call.func)) is not None:
        return module.kinds.of_class(made) == "module" and _has_state(module, made, set())
    return (
        name.startswith("torch.nn.")
        and name.count(".") == 2
        and name[9:10].isupper()
        and not _STATELESS.search(name)
    )


def _has_state(module: SourceModule, owner: ast.ClassDef, seen: set[ast.ClassDef]) -> bool:
    """Tell whether a module of the program has weights, buffers or modes; what can't be seen of it counts as such."""
    seen.add(owner)
    lineage = module.classes.lineage(owner)
    bases = [each for one in lineage for each in one.bases if module.classes.named(each) not in lineage]
    if any(module.qualify(each) != "torch.nn.Module" for each in bases):
        return True
    if any(
        isinstance(each, ast.Attribute) and ast.unparse(each) == "self.training"
        for one in lineage
        for each in walk(one)
    ):
        return True
    for call in (each for one in lineage for each in walk(one) if isinstance(each, ast.Call)):
        made, name = module.classes.named(call.func), module.qualify(call.func) or ""
        if made is not None and made not in seen and module.kinds.of_class(made) is not None:
            if _has_state(module, made, seen):
                return True
        registers = getattr(call.func, "attr", "") in ("register_buffer", "register_parameter", "add_module")
        layer = name.startswith("torch.nn.") and name.count(".") == 2 and name[9:10].isupper()
        if registers or (layer and not _STATELESS.search(name)) or name == "torch.nn.Parameter":
            return True
        if made is None and module.functions.named(call.func) is not None and _is_kept(module, call):
            return True
    return False


def _is_kept(module: SourceModule, call: ast.Call) -> bool:
    statement = module.statement(call)
    return isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Attribute)


def _appended(module: SourceModule, owner: ast.ClassDef, name: str, value: ast.expr) -> bool:
    if not (isinstance(value, ast.List) and not value.elts):
        return False
    return any(
        isinstance(call.func, ast.Attribute)
        and ast.unparse(call.func.value) == f"self.{name}"
        and module.enclosing(call, ast.ClassDef) is owner
        and bool(call.args)
        and _is_made_here(module, call.args[0])
        for call in module.method_calls("append")
    )


def _is_made_here(module: SourceModule, given: ast.expr) -> bool:
    """Tell a module that is made where it is put into the list, or before under a name that keeps it nowhere else."""
    if isinstance(given, ast.Call):
        return _makes_module(module, given)
    values = module.definitions(given) if isinstance(given, ast.Name) else []
    if len(values) != 1 or not isinstance(values[0], ast.Call) or not _makes_module(module, values[0]):
        return False
    assert isinstance(given, ast.Name)
    others = [each for each in module.reads(given.id) if module.scope(each) is module.scope(given)]
    return not any(_keeps(module, each, given) for each in others if each is not given)


def _keeps(module: SourceModule, name: ast.expr, given: ast.expr) -> bool:
    """Tell whether an attribute, another list or another module holds it too, whenever the list does."""
    always = set(module.ancestors(module.statement(given)))
    branches = [each for each in module.ancestors(name) if isinstance(each, ast.If)]
    if not all(each in always for each in branches):
        return False
    above = module.parents[name]
    if isinstance(above, ast.Attribute):  # its own attributes and methods
        return False
    return isinstance(module.statement(name), ast.Assign | ast.Return) or isinstance(
        above, ast.Call | ast.keyword
    )


def _registered(module: SourceModule, owner: ast.ClassDef, name: str) -> bool:
    """Layers that also go into a Sequential, a ModuleList, add_module or an own parameters() are seen after all."""
    own = module.classes.method(owner, "parameters")
    if own is not None and any(each.attr == name for each in module.inside(own, ast.Attribute)):
        return True
    for node in walk(owner):
        if isinstance(node, ast.Attribute) and node.attr == name and ast.unparse(node) == f"self.{name}":
            calls = [each for each in module.ancestors(node) if isinstance(each, ast.Call)]
            if any(
                (module.qualify(each.func) or ast.unparse(each.func)).endswith(
                    ("Sequential", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict")
                )
                for each in calls
            ):
                return True
    return any(
        ast.unparse(node.func) in ("self.add_module", "self.register_module", "setattr")
        for node in walk(owner)
        if isinstance(node, ast.Call)
    )


def _type(value: ast.expr) -> str:
    return (
        "dict"
        if isinstance(value, ast.Dict | ast.DictComp)
        else "tuple"
        if isinstance(value, ast.Tuple)
        else "list"
    )
