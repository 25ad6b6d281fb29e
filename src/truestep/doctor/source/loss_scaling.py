# SPDX-License-Identifier: Apache-2.0
"""Whether a loss, or its gradients, may be divided by how many batches an update is made of."""

import ast

from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function, dotted_name, walk
from truestep.doctor.source.protocol_calls import Protocol
from truestep.doctor.source.value_origins import Position

_Part = tuple[ast.expr | None, Position]  # None: out of sight
_HOOKS = {
    "_foreach_div_",
    "_foreach_mul_",
    "register_hook",
    "register_post_accumulate_grad_hook",
    "register_step_pre_hook",
}


def is_scaled(module: SourceModule, loss: ast.expr) -> bool | None:
    """Tell whether a loss comes from a product or a quotient; None where part of it is out of sight.

    Of a sum each term must: a penalty with a weight divides nothing beside it.
    """
    return _is_scaled(module, (loss, ()), set())


def _is_scaled(module: SourceModule, part: _Part, seen: set[_Part]) -> bool | None:
    waiting: list[_Part] = [part]
    hidden = False
    while waiting:
        node, place = waiting.pop()
        if node is None or (node, place) in seen:
            hidden = hidden or node is None
            continue
        seen.add((node, place))
        if _is_scaling_operation(node) or _is_scaled_in_place(module, node):
            return True
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
            terms = [each for each in (node.left, node.right) if not isinstance(each, ast.Constant)]
            found = [_is_scaled(module, (each, ()), set(seen)) for each in terms]
            if found and all(found):
                return True
            hidden = hidden or (None in found and False not in found)
            continue
        waiting += _parts_of_value(module, node, place)
    return None if hidden else False


def _parts_of_value(module: SourceModule, node: ast.expr, place: Position) -> list[_Part]:
    """Return what a value, or what stands at a place of a tuple, is made of."""
    match node:
        case ast.Name() if (given := module.resolver.unpacked(node)) is not None:
            return [(value, (*inner, *place)) for value, inner in given]
        case ast.Subscript(value=ast.Call(), slice=ast.Constant(value=int(index))):
            return [(node.value, (index, *place))]
        case ast.Name() | ast.Attribute() | ast.Subscript():
            return [(each, place) for each in module.definitions(node)]
        case ast.Tuple() | ast.List() if place and place[0] < len(node.elts):
            return [(node.elts[place[0]], place[1:])]
        case ast.IfExp():
            return [(node.body, place), (node.orelse, place)]
        case ast.Call():
            return _parts_of_call(module, node, place)
        case ast.GeneratorExp() | ast.ListComp():
            return [(node.elt, ())]
        case ast.BinOp():
            return [(node.left, ()), (node.right, ())]
        case ast.UnaryOp():
            return [(node.operand, ())]
    return []


def _parts_of_call(module: SourceModule, call: ast.Call, place: Position) -> list[_Part]:
    if _passes_loss_on(module, call):
        return [(each, ()) for each in call.args[:1]]
    owner = module.classes.of(call.func)
    function = (
        module.classes.method(owner, "forward") if owner is not None and place else None
    ) or _called_function(module, call)
    if function is not None:
        return [(each, place) for each in module.functions.results(function)]
    if (forward := module.classes.method(owner, "forward")) is not None:
        return [
            (each, ())
            for each in module.functions.results(forward)
            if each is not None and _is_scaling_operation(each)
        ]
    if place and module.kind(call.func) not in ("module", "ddp"):
        return [(None, ())]  # a model does not know of how many batches an update is; another function may
    of_library = module.qualify(call.func) is not None
    return [(call.func.value, ())] if isinstance(call.func, ast.Attribute) and not of_library else []


def _called_function(module: SourceModule, call: ast.Call) -> Function | None:
    """Return the function that a call runs, also of an attribute that was given a partial of it, or what a function made."""
    found = module.functions.target(call)
    if found is not None or not isinstance(call.func, (ast.Name, ast.Attribute)):
        return found
    made = module.definitions(call.func)
    value = made[0] if len(made) == 1 else None
    if not isinstance(value, ast.Call):
        return None
    if module.qualify(value.func) == "functools.partial" and value.args:
        return module.functions.named(value.args[0]) or module.functions.kept(value.args[0])
    results = module.functions.results(module.functions.target(value))
    return module.functions.named(results[0]) if len(results) == 1 else None


def _passes_loss_on(module: SourceModule, call: ast.Call) -> bool:
    """Tell `scaler.scale(loss)` and `torch.sum(loss)`: the loss is what they are given."""
    name = module.qualify(call.func) or ""
    return Protocol(module).scaled(call) is not None or name in (
        "torch.sum",
        "torch.mean",
        "torch.stack",
        "sum",
    )


def _is_scaling_operation(node: ast.AST) -> bool:
    if isinstance(node, (ast.BinOp, ast.AugAssign)):
        return isinstance(node.op, (ast.Div, ast.Mult))
    method = node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""
    return method in ("div", "mul", "div_", "mul_", "true_divide")


def _is_scaled_in_place(module: SourceModule, node: ast.expr) -> bool:
    """Tell a name that `loss /= k` or `loss.div_(k)` changes."""
    name = dotted_name(node) if isinstance(node, (ast.Name, ast.Attribute)) else None
    home = module.home(node)
    return name is not None and name in _names_scaled_in_place(home, home.scope(node))


def _names_scaled_in_place(module: SourceModule, scope: ast.AST) -> set[str | None]:
    """Return what a function divides or multiplies where it stands."""
    calls = [each for each in module.inside(scope, ast.Call) if isinstance(each.func, ast.Attribute)]
    scaling = [each for each in calls if each.func.attr in ("div_", "mul_")]  # type: ignore[attr-defined]
    changed = [each.func.value for each in scaling if not _is_gradient_clip(each)]  # type: ignore[attr-defined]
    changed += [each.target for each in module.inside(scope, ast.AugAssign) if _is_scaling_operation(each)]
    return {dotted_name(each) for each in changed}


def _is_gradient_clip(call: ast.Call) -> bool:
    """Tell `p.grad.mul_((1 / norm(p.grad)).clamp(max=1.0))`: it bounds a value by a size of its own."""
    factor, target = call.args[0] if call.args else None, getattr(call.func, "value", call)
    if not (isinstance(factor, ast.Call) and isinstance(factor.func, ast.Attribute)):
        return False
    most = [each.value for each in factor.keywords if each.arg == "max"]
    is_bounded = factor.func.attr == "clamp" and any(
        isinstance(each, ast.Constant) and each.value == 1 for each in most
    )
    return is_bounded and any(ast.dump(each) == ast.dump(target) for each in walk(factor))


def divides_gradients(module: SourceModule) -> bool:
    """Tell a program that changes gradients itself, in place or by hooks: it may divide them there."""
    program = module.program
    return bool(program.identifiers & _HOOKS) or program.answer(_any_gradient_changed)


def _any_gradient_changed(files: list[SourceModule]) -> bool:
    """Tell `p.grad /= k`, `p.grad.data.mul_(1 / k)` and `p.grad = p.grad / k` in any file."""
    changed = [name for file in files for name in _names_scaled_in_place(file, file.tree)]
    made = [
        each
        for file in files
        for each in file.all(ast.Assign)
        if any(map(_is_scaling_operation, walk(each.value)))
    ]
    changed += [dotted_name(target) for each in made for target in each.targets]
    return any((name or "").removesuffix(".data").endswith(".grad") for name in changed)
