# SPDX-License-Identifier: Apache-2.0
"""Which expressions are tensors for certain, and which of them autograd follows."""

import ast

from truestep.doctor.library.operations import operations
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.once import asked_once

_MAKERS = {f"torch.{name}" for name in operations(numbers="drawn filled copied joined")} | {
    "torch.autograd.Variable",
    "torch.nn.Parameter",
}
_SAME = operations(numbers="kept itself home moved rounded whole indices") - operations(graph="left")
_OF_LAYERS = ("weight", "bias")


@asked_once(False)
def is_tensor(module: SourceModule, node: ast.expr | None, depth: int = 0) -> bool:
    """Tell whether an expression is a tensor, on every way to it."""
    if node is None:
        return False
    if isinstance(node, ast.Call):
        if module.qualify(node.func) in _MAKERS:
            return True
        method = node.func
        return (
            isinstance(method, ast.Attribute)
            and method.attr in _SAME
            and is_tensor(module, method.value, depth + 1)
        )
    if isinstance(node, ast.Name) and _declared(module, node):
        return True
    values = module.definitions(node)
    if values:
        return all(is_tensor(module, each, depth + 1) for each in values)
    return isinstance(node, ast.Attribute) and node.attr in _OF_LAYERS and _is_layer(module, node.value)


def _declared(module: SourceModule, name: ast.Name) -> bool:
    """`x: torch.Tensor`, and p of `for p in net.parameters()`."""
    bindings = module.names.bindings(name)
    if len(bindings) != 1:
        return False
    (binding,) = bindings
    if isinstance(binding.node, ast.arg):
        hint = binding.node.annotation
        return hint is not None and module.qualify(hint) in ("torch.Tensor", "torch.nn.Parameter")
    call = binding.value
    return (
        binding.how == "for"
        and isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "parameters"
        and module.parents.get(binding.node) is not None
        and isinstance(binding.node, ast.Name)
    )


def _is_layer(module: SourceModule, node: ast.expr) -> bool:
    values = module.definitions(node)
    made = [module.qualify(each.func) if isinstance(each, ast.Call) else None for each in values]
    return bool(made) and all(name is not None and name.startswith("torch.nn.") for name in made)


def moved_already(move: ast.Call, maker: ast.Call) -> bool:
    """Tell `nn.Parameter(x.to(device)).to(device)`."""
    inner = maker.args[0] if maker.args else None
    if not (isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute)):
        return False
    assert isinstance(move.func, ast.Attribute)
    same = [ast.dump(each) for each in inner.args] == [ast.dump(each) for each in move.args]
    return inner.func.attr == move.func.attr and same and not inner.keywords and not move.keywords
