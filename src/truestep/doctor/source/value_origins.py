# SPDX-License-Identifier: Apache-2.0
"""What a value was made by: literals, arguments, and the last operation on a tensor."""

import ast
import re
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from typing import Any

from truestep.doctor.library.operations import SAME_NUMBERS, operations
from truestep.doctor.source.classes import MAX_DEPTH
from truestep.doctor.source.memoized_walk import asked_once
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Scope, given_to, walk

# what leaves the meaning of the numbers as it is: shapes, devices, types, graph
_TRANSPARENT = SAME_NUMBERS - operations(shape="gone")
_LAYERS = {"torch.nn.Sequential"}
_PROJECTED = operations(numbers="projected")
Position = tuple[int, ...]  # a place in a tuple: (1, 0) for h in `out, (h, c) = ...`


def argument(call: ast.Call, position: int | None, keyword: str) -> ast.expr | None:
    """Return the argument of a call that stands at a position or under a keyword."""
    for word in call.keywords:
        if word.arg == keyword:
            return word.value
    if (
        position is not None
        and position < len(call.args)
        and not any(isinstance(a, ast.Starred) for a in call.args)
    ):
        return call.args[position]
    return None


def has_star_args(call: ast.Call) -> bool:
    """Tell whether the call spreads arguments that can't be seen (`*args`, `**options`)."""
    return any(word.arg is None for word in call.keywords) or any(
        isinstance(a, ast.Starred) for a in call.args
    )


def constant(node: ast.expr | None) -> Any:
    """Return a literal's value, or None; a negative number counts as a literal."""
    if isinstance(node, ast.Constant):
        return node.value
    if (
        isinstance(node, ast.UnaryOp)
        and isinstance(node.op, ast.USub)
        and isinstance(node.operand, ast.Constant)
    ):
        value = node.operand.value
        return -value if isinstance(value, (int, float)) else None
    return None


def literal(module: SourceModule, node: ast.expr | None) -> Any:
    """Return the literal that an expression stands for on every way to it, through names, attributes and items."""
    if node is None or isinstance(node, (ast.Constant, ast.UnaryOp)):
        return constant(node)
    found = [constant(each) for each in value_origins(module, node)]
    return found[0] if found and all(each == found[0] and each is not None for each in found) else None


def resolve_expression(module: SourceModule, node: ast.expr | None) -> ast.expr | None:
    """Return the one expression that a name, an attribute or an item stands for; itself where that can't be told."""
    for _ in range(MAX_DEPTH):
        named = isinstance(node, (ast.Name, ast.Attribute, ast.Subscript))
        definitions = module.definitions(node) if named and node is not None else []
        if len(definitions) != 1 or definitions[0] is None:
            break
        node = definitions[0]
    return node


def argument_parts(module: SourceModule, call: ast.Call) -> list[ast.AST]:
    """Return all that the arguments of a call are made of, where it is written or under a name."""
    every = given_to(call)
    return [part for each in every for part in walk(resolve_expression(module, each) or each)]


def is_call_of(module: SourceModule, node: ast.AST | None, *names: str) -> bool:
    """Tell whether a node is a call of one of these full names."""
    return isinstance(node, ast.Call) and module.qualify(node.func) in names


def value_origins(module: SourceModule, node: ast.expr) -> Iterator[ast.expr | None]:
    """Yield the expressions that a value may come from, through names and what does not change it."""
    seen: set[ast.expr] = set()
    waiting: list[ast.expr] = [node]
    for _ in range(MAX_DEPTH + 1):
        behind_names: list[ast.expr] = []
        for found in waiting:
            each, definitions = _strip_wrapping(module, found)
            if each in seen:
                continue
            seen.add(each)
            if not definitions:
                yield None if isinstance(each, ast.Name) else each
            if None in definitions:
                yield None
            behind_names += [value for value in definitions if value is not None]
        waiting = behind_names
    if waiting:
        yield None


_NAMED = ast.Name | ast.Attribute | ast.IfExp | ast.Subscript


def _strip_wrapping(module: SourceModule, node: ast.expr) -> tuple[ast.expr, list[ast.expr | None]]:
    """Strip what leaves the numbers as they are, and return what the rest is defined by."""
    while True:
        definitions = module.definitions(node) if isinstance(node, _NAMED) else []
        inner = node if definitions else _unwrap_once(node)
        if inner is node and isinstance(node, ast.Call):
            inner = module.classes.rewrapped(node) or node
        if inner is node:
            return node, definitions
        node = inner


def unwrap_expression(node: ast.expr) -> ast.expr:
    """Strip `.to(...)`, `.view(...)`, `[..., 0]` and the like."""
    while (inner := _unwrap_once(node)) is not node:
        node = inner
    return node


def _unwrap_once(node: ast.expr) -> ast.expr:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _TRANSPARENT:
        return node.func.value
    if isinstance(node, ast.Subscript) or (isinstance(node, ast.Attribute) and node.attr == "data"):
        return node.value
    return node


def value_sources(
    module: SourceModule, node: ast.expr, position: Position = (), *, unwritten: bool = False
) -> Iterator[tuple[ast.expr | None, Position]]:
    """Yield what a value may come from, as `value_origins`, and its place where that is a tuple.

    `_, label = net(x)` comes from `net(x)` at place 1, and so does `net(x)[1]`. With `unwritten`, None is
    among them where something may have written into the tensor since.
    """
    seen: set[tuple[ast.expr, Position]] = set()
    waiting = [(node, position)]
    for _ in range(MAX_DEPTH + 1):
        found: list[tuple[ast.expr, Position]] = []
        for each in waiting:
            place = _strip_to_place(module, *each)
            if place in seen:
                continue
            seen.add(place)
            if unwritten and isinstance(place[0], ast.Name) and _is_written_into(module, place[0]):
                yield None, ()
            values = _sources_one_step_back(module, *place)
            if values is None:
                yield (None if isinstance(place[0], ast.Name) else place[0]), place[1]
                continue
            if any(value is None for value, _ in values):
                yield None, ()
            found += [(value, inner) for value, inner in values if value is not None]
        waiting = found
    if waiting:
        yield None, ()


def _sources_one_step_back(
    module: SourceModule, node: ast.expr, position: Position
) -> list[tuple[ast.expr | None, Position]] | None:
    """Return what a name may stand for, and the place in that; None where the expression is the source."""
    names = module.resolver.unpacked(node) if isinstance(node, ast.Name) else None
    if names is not None:
        return [(value, (*place, *position)) for value, place in names]
    values = module.definitions(node) if isinstance(node, _NAMED) else []
    return [(value, position) for value in values] or None


def _strip_to_place(module: SourceModule, node: ast.expr, position: Position) -> tuple[ast.expr, Position]:
    """Strip what leaves the numbers as they are; a constant index may be a place in a tuple."""
    while (inner := _unwrap_once(node)) is not node and not _is_variable_item(module, node):
        index = constant(node.slice) if isinstance(node, ast.Subscript) else None
        if isinstance(index, int) and index >= 0:
            position = (index, *position)
        node = inner
    return node, position


_LEAVES_NUMBERS = ("requires_grad_", "detach_", "share_memory_")


def _is_written_into(module: SourceModule, name: ast.Name) -> bool:
    """Tell whether something may have written into a tensor before it is read: `x[:, 0] = y`, `x.mul_(y)`, `out=x`."""
    home = module.home(name)
    key = (_names_written_into, scope := home.scope(name))
    if key not in home.remembered:
        home.remembered[key] = _names_written_into(home, scope)
    at = {each for each in home.ancestors(name) if isinstance(each, (ast.For, ast.While))}
    for each in home.remembered[key].get(name.id, ()):
        shared = set(home.definitions(each)) & set(home.definitions(name)) - {None}
        around = [loop for loop in home.ancestors(each) if loop in at]
        again = any(loop not in home.ancestors(made) for made in shared for loop in around)  # type: ignore[arg-type]
        statement = home.statement(each)
        if shared and statement is not home.statement(name) and (statement.lineno < name.lineno or again):
            return True
    return False


def _names_written_into(module: SourceModule, scope: Scope) -> dict[str, list[ast.Name]]:
    """Return the names whose tensors a function writes into, by the name."""
    into: list[ast.expr] = [
        target for each in module.directly_in(scope, ast.Assign) for target in each.targets
    ]
    into += [each.target for each in module.directly_in(scope, ast.AugAssign)]
    into = [each for each in into if isinstance(each, ast.Subscript)]
    for call in module.directly_in(scope, ast.Call):
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if method.endswith("_") and not method.endswith("__") and method not in _LEAVES_NUMBERS:
            into += call.args[:1] if module.qualify(call.func) else [call.func.value]  # type: ignore[attr-defined]
        if constant(argument(call, None, "inplace")) is True:
            into += call.args[:1]
        if (given := argument(call, None, "out")) is not None:
            into.append(given)
    found: dict[str, list[ast.Name]] = {}
    for each in map(unwrap_expression, into):
        if isinstance(each, ast.Name):
            found.setdefault(each.id, []).append(each)
    return found


def _is_variable_item(module: SourceModule, node: ast.expr) -> bool:
    """Tell `kept["opt"]` from `x[0]`: an item of a table that is in sight is a variable."""
    return isinstance(node, ast.Subscript) and bool(module.definitions(node))


def calls_behind(module: SourceModule, node: ast.expr) -> Iterator[ast.Call]:
    """Yield the calls of this scope that a value is computed by, through the names in between."""
    scope = module.scope(node)
    seen: set[ast.expr] = set()
    waiting = [node]
    while waiting:
        current = waiting.pop(0)
        if current in seen:
            continue
        seen.add(current)
        for each in walk(current):
            if isinstance(each, ast.Call):
                yield each
            elif isinstance(each, ast.Name):
                values = module.resolver.given_whole_or_in_part(each)
                waiting += [value for value in values if value is not None and module.scope(value) is scope]


@asked_once(frozenset({None}))
def last_operations(
    module: SourceModule, node: ast.expr, depth: int = 0, position: Position = ()
) -> AbstractSet[str | None]:
    """Return the names of the operations that may have made a tensor last; None where one is unknown.

    A name is the last part of the operation's: `softmax` for `F.softmax(x)`, `x.softmax(1)`,
    `nn.Softmax()(x)`, and for a module of this file whose forward ends so.
    """
    found: set[str | None] = set()
    for origin, place in value_sources(module, node, position, unwritten=True):
        if isinstance(origin, ast.Call):
            names = _operation_names(module, origin, depth, place)
            found |= (
                {"softmax"} if names & SOFTMAX_PARTS and is_softmax_by_hand(module, origin, depth) else names
            )
        elif isinstance(origin, ast.BinOp):
            by_hand = {"softmax"} if is_softmax_by_hand(module, origin, depth) else set()
            found |= by_hand or _scaled_projection(module, origin, depth) or {"arithmetic"}
        else:
            found.add(None)
    return found


def _scaled_projection(module: SourceModule, node: ast.BinOp, depth: int) -> AbstractSet[str | None]:
    """Return the layer whose output is divided by a number, or times one: `self.head(x) / 1.5` is still the head's."""
    if not isinstance(node.op, (ast.Mult, ast.Div)):
        return set()
    for value, factor in ((node.left, node.right), (node.right, node.left)):
        if isinstance(literal(module, factor), (int, float)):
            made = last_operations(module, value, depth + 1)
            return made if made and made <= _PROJECTED else set()
        if isinstance(node.op, ast.Div):
            return set()
    return set()


SOFTMAX_PARTS = {"exp", "div", "true_divide"}
"""What a softmax that is written out ends in, beside a division by `/`."""


def is_softmax_by_hand(module: SourceModule, node: ast.Call | ast.BinOp, depth: int) -> bool:
    """Tell `e / e.sum(1, keepdim=True)` of an exponential, and the exponential of a log-softmax."""
    if isinstance(node, ast.BinOp):
        parts = [node.left, node.right] if isinstance(node.op, ast.Div) else []
    elif isinstance(node.func, ast.Attribute):
        parts = [*([] if module.qualify(node.func) else [node.func.value]), *node.args]
    else:
        parts = []
    if depth >= MAX_DEPTH or not 0 < len(parts) <= _SIDES:
        return False
    made = last_operations(module, parts[0], depth + 1)
    if len(parts) == 1:
        return made == {"log_softmax"} or _is_log_softmax(module, parts[0])
    summed = _summed_by_axis(module, parts[1])
    same = summed is not None and ast.unparse(summed) == ast.unparse(parts[0])
    return same and made == {"exp"}


_SIDES = 2  # of a division


def _is_log_softmax(module: SourceModule, node: ast.expr) -> bool:
    """Tell `x - torch.logsumexp(x, 1, keepdim=True)`."""
    match resolve_expression(module, node):
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            summed = resolve_expression(module, unwrap_expression(right))
            return isinstance(summed, ast.Call) and ast.unparse(left) in map(
                ast.unparse, _operands_of_operation(module, summed, "logsumexp")
            )
    return False


def _summed_by_axis(module: SourceModule, node: ast.expr) -> ast.expr | None:
    """Return x of `x.sum(1)`, under whatever name, and beside a small number."""
    found = resolve_expression(module, unwrap_expression(node))
    if (
        isinstance(found, ast.BinOp)
        and isinstance(found.op, ast.Add)
        and isinstance(literal(module, found.right), float)
    ):
        found = resolve_expression(module, unwrap_expression(found.left))
    if (
        isinstance(found, ast.Call)
        and isinstance(found.func, ast.Attribute)
        and found.func.attr in _TRANSPARENT
    ):
        found = resolve_expression(module, unwrap_expression(found))
    operands = _operands_of_operation(module, found, "sum") if isinstance(found, ast.Call) else []
    by_axis = len(operands) > 1 or (operands and any(word.arg in ("dim", "axis") for word in found.keywords))  # type: ignore[union-attr]
    return operands[0] if by_axis else None


def _operands_of_operation(module: SourceModule, call: ast.Call, operation: str) -> list[ast.expr]:
    """Return what an operation of this name is given, the tensor first; nothing for another one."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr != operation:
        return []
    return [*([] if module.qualify(call.func) else [call.func.value]), *call.args]


def last_operands(module: SourceModule, node: ast.expr) -> Iterator[ast.expr | None]:
    """Yield what each operation was applied to that `last_operations` names; None where that stands in another function."""
    for origin, _ in value_sources(module, node, unwritten=True):
        if not isinstance(origin, ast.Call) or module.functions.target(origin) is not None:
            yield None
        elif origin.args and (module.qualify(origin.func) or _is_one_layer(module, origin.func)):
            yield origin.args[0]
        elif isinstance(origin.func, ast.Attribute) and module.kind(origin.func) != "module":
            yield origin.func.value
        else:
            yield None


def _is_one_layer(module: SourceModule, function: ast.expr) -> bool:
    """Tell `nn.Softmax(1)`, where it is written or under a name."""
    made = [function] if isinstance(function, ast.Call) else list(value_origins(module, function))
    names = [module.qualify(each.func) or "" if isinstance(each, ast.Call) else "" for each in made]
    return all(each.startswith("torch.nn.") and each not in _LAYERS for each in names)


def _operation_names(module: SourceModule, call: ast.Call, depth: int, position: Position) -> set[str | None]:
    qualified = module.qualify(call.func)
    if (qualified and qualified.startswith(("torch.nn.functional.", "torch.special."))) or (
        (qualified or "").count(".") == 1 and (qualified or "").startswith("torch.")
    ):
        return {(qualified or "").rsplit(".", 1)[-1]}
    layer = _operations_of_layer(module, call.func, depth)
    if layer is not None:
        return layer
    target = module.functions.applied(call)
    if target is not None and not isinstance(target, ast.Lambda):
        return _operations_returned(module, target, depth, position)
    if isinstance(call.func, ast.Attribute):
        return {call.func.attr}
    return {None}


def _operations_returned(
    module: SourceModule,
    function: ast.FunctionDef | ast.AsyncFunctionDef,
    depth: int,
    position: Position,
) -> set[str | None]:
    found: set[str | None] = set()
    for node in module.functions.returns(function):
        assert node.value is not None
        value, left = node.value, position
        while isinstance(value, ast.Tuple) and left and left[0] < len(value.elts):
            value, left = value.elts[left[0]], left[1:]
        value = value.elts[0] if isinstance(value, ast.Tuple) and value.elts else value
        found |= last_operations(module, value, depth + 1, left)
    return found or {None}


def layers_behind(module: SourceModule, function: ast.expr) -> list[ast.expr | None]:
    """Return what made what is called: a layer's constructor, there or under a name; None for what can't be told."""
    return list(value_origins(module, function)) if isinstance(function, _MADE) else [None]


_MADE = ast.Name | ast.Attribute | ast.Call


def _operations_of_layer(module: SourceModule, function: ast.expr, depth: int) -> set[str | None] | None:
    """Return the operation of a torch layer that is applied, e.g. of `nn.Sequential(..., nn.Softmax(1))`."""
    found: set[str | None] = set()
    for each in layers_behind(module, function):
        if not isinstance(each, ast.Call):
            return None
        name = module.qualify(each.func) or ""
        if not name.startswith("torch.nn."):
            return None
        if name in _LAYERS and each.args and depth < MAX_DEPTH and not isinstance(each.args[-1], ast.Starred):
            found |= _operations_of_layer(module, each.args[-1], depth + 1) or {None}
        else:
            found.add(function_name_of_layer(name))
    return found or None


def function_name_of_layer(qualified: str) -> str:
    """Turn torch.nn.LogSoftmax into log_softmax, BCEWithLogitsLoss into bce_with_logits_loss, ReLU into relu."""
    short = re.sub(
        "([PR]?)Re?LU|SiLU",
        lambda found: found[0].capitalize(),
        qualified.rsplit(".", 1)[-1].removeprefix("Lazy"),
    )
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", short).lower()
