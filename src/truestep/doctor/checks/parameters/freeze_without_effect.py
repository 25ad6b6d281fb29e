# SPDX-License-Identifier: Apache-2.0
"""Layers that were meant to be frozen."""

import ast
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import ADVICE, BUG, At, SourceCheck
from truestep.doctor.library.operations import MAKERS
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Binding, dotted_name, walk
from truestep.doctor.source.redundant_unfreezing import is_redundant_requires_grad
from truestep.doctor.source.rewriting import Edits, node_text, replace_node
from truestep.doctor.source.value_origins import constant, value_origins

MISSPELT = ("require_grad", "requires_grads", "require_grads", "required_grad")


class FreezeWithoutEffect(SourceCheck):
    """requires_grad is assigned to a module, or misspelt.

    Why: Python makes a new attribute that nothing reads: what was meant to be frozen goes on training.

    Bad:
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.body = nn.Linear(4, 8)
                self.body.requires_grad = False  # here

    Good:
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.body = nn.Linear(4, 8)
                self.body.requires_grad_(False)

    Fix: module.requires_grad_(False), or `parameter.requires_grad = False` for each parameter.

    Evidence: found in the wild (docs/wild.md); 186 repositories, beds D, E, G, K, M, P, Q, R, S, U, W: 14 true,
    1 debatable, 2 false.
    """

    code = "PARAM020"
    words = (".requires_grad", *(f".{name}" for name in MISSPELT))

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report the assignment of a literal to such an attribute."""
        for statement in module.all(ast.Assign):
            for target in statement.targets:
                if not isinstance(target, ast.Attribute) or not isinstance(constant(statement.value), bool):
                    continue
                if target.attr in MISSPELT:
                    text = f"{target.attr!r} is misspelt: the attribute is requires_grad."
                    yield At(statement, text, ADVICE if _has_no_gradient_anyway(module, statement) else BUG)
                elif target.attr == "requires_grad" and _is_module(module, target.value):
                    owner = ast.unparse(target.value)
                    text = f"{owner} is a module: its parameters keep their requires_grad."
                    yield At(
                        statement,
                        text,
                        ADVICE if is_redundant_requires_grad(module, statement, target) else BUG,
                    )

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Freeze the parameters."""
        target, value = node.targets[0], node_text(module, node.value)
        owner = node_text(module, target.value)
        if target.attr in MISSPELT:
            return [replace_node(module, target, f"{owner}.requires_grad")]
        return [replace_node(module, node, f"{owner}.requires_grad_({value})")]


def _has_no_gradient_anyway(module: SourceModule, statement: ast.Assign) -> bool:
    """Tell False for a tensor that was just made, or for data: it has no gradient anyway."""
    target = statement.targets[0]
    if not isinstance(target, ast.Attribute) or constant(statement.value) is not False:
        return False
    if _is_forward_or_loader_input(module, target.value):
        return True
    made = list(value_origins(module, target.value))
    names = [module.qualify(each.func) or "" for each in made if isinstance(each, ast.Call)]
    return len(names) == len(made) > 0 and all(each.removeprefix("torch.") in MAKERS for each in names)


def _is_forward_or_loader_input(module: SourceModule, held: ast.expr) -> bool:
    """Tell what the forward of a module is given, and what a loop takes from a loader."""
    if not isinstance(held, ast.Name):
        return False
    bindings = module.names.bindings(held)
    return bool(bindings) and all(_is_data_binding(module, each) for each in bindings)


def _is_data_binding(module: SourceModule, binding: Binding) -> bool:
    function, loop = binding.parameter_of, module.enclosing(binding.node, ast.For)
    if binding.how == "parameter":
        owner = module.parents.get(function) if function is not None else None
        return getattr(function, "name", "") == "forward" and owner in module.kinds.classes_of("module")
    sources = walk(loop.iter) if binding.how == "for" and loop is not None else []
    return any(isinstance(each, ast.expr) and module.kind(each) == "loader" for each in sources)


def _is_module(module: SourceModule, node: ast.expr) -> bool:
    """Tell a module, also one that was put in here: `net.fc = nn.Linear(512, 10)`."""
    if module.kind(node) in ("module", "ddp"):
        return True
    if not isinstance(node, ast.Attribute):
        return False
    place, attribute = dotted_name(node), node.attr
    here = [
        binding.value
        for base, binding in module.index.written.get(attribute, [])
        if place == f"{dotted_name(base)}.{attribute}" and module.scope(base) is module.scope(node)
    ]
    return bool(here) and all(each is not None and module.kind(each) == "module" for each in here)
