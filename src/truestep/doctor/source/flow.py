# SPDX-License-Identifier: Apache-2.0
"""Where a value goes: what is computed from it, through names, attributes, lists, loops, and the calls of the program."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.library.operations import CUTS
from truestep.doctor.source.applications import applications
from truestep.doctor.source.arguments import argument_for, default_of, parameters_given
from truestep.doctor.source.libraries import gives_loss
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function, Scope, dotted, names_in, receiver_of, walk
from truestep.doctor.source.once import answered_once
from truestep.doctor.source.protocol import Protocol
from truestep.doctor.source.settings import is_setting
from truestep.doctor.source.uses import names_read
from truestep.doctor.source.values import constant, literal

# what gives back no part of the graph, or nothing that a loss could be made of
_CUTS = CUTS | {"backward", "append", "update", "extend"}
_HANDS_ON = ("sum", "zip", "list", "tuple", "enumerate", "reversed", "map")
_OF_TENSORS = ("torch.", "truestep.")
_COEFFICIENT = re.compile(
    r"lam(b|bda)?(_|\b)|lambda|lmbda|weight|coef|beta|gamma|alpha|scale|hparams|penalty|reg|factor|strength",
    re.IGNORECASE,
)
_HANDED_ON = 2  # times that a loss is given to another function
_KEEPS = ("append", "extend", "insert")
Position = tuple[object, ...]  # where in a tuple or dict the value stands; empty: it is the whole


def flows_to(module: SourceModule, value: ast.expr, position: Position = ()) -> set[ast.AST]:
    """Return the expressions of the function around that are computed from a value, and get a gradient through it alone.

    With a position the value is a tuple or dict, and what stands there is followed.
    """
    places: set[str] = set()
    if not position:
        found = set(_above(module, value))
    else:
        found, places = _part_of(module, value, position[0])
    return _spread(module, module.scope(value), found, places)


def _spread(module: SourceModule, scope: Scope, found: set[ast.AST], places: set[str]) -> set[ast.AST]:
    """Add what is computed in a function from these expressions and places, until nothing is new."""
    statements = [each for each in walk(scope) if isinstance(each, ast.stmt) and module.scope(each) is scope]
    if isinstance(scope, ast.Lambda):
        statements = [ast.Expr(scope.body)]
    before = -1
    while before != len(places) + len(found):
        before = len(places) + len(found)
        for node in statements:
            for each in _parts(node):
                if each not in found and (
                    _reads(module, each, places) or _encloses(module, each, scope, places)
                ):
                    found |= set(_above(module, each))
            places |= _places_filled(node, found)
    return found


def _reads(module: SourceModule, node: ast.AST, places: set[str]) -> bool:
    """Tell whether a value is read from one of these places, or from a dict that has one of them."""
    if not isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)) or not isinstance(node.ctx, ast.Load):
        return False
    place = place_of(node)
    if place is None or place in places:
        return place is not None
    outer = module.parents.get(node)
    item = isinstance(outer, ast.Subscript) and outer.value is node and constant(outer.slice) is not None
    return not item and any(each.startswith(f"{place}[") for each in places)


def _encloses(module: SourceModule, node: ast.AST, scope: Scope, places: set[str]) -> bool:
    """Tell the call of a function defined here that makes its result of what it sees around it."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return False
    function = module.functions.target(node)
    if (
        not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
        or module.scope(function) is not scope
    ):
        return False
    own = {each.arg for each in walk(function) if isinstance(each, ast.arg)}
    return _is_made_of(module, function, names_read(function) & places - own)


def _is_made_of(module: SourceModule, function: Function, names: frozenset[str]) -> bool:
    """Tell whether a function gives back what it makes of names in it."""
    key = (_is_made_of, function, names)
    if key not in module.remembered:
        module.remembered[key] = False  # a cycle ends here
        home = module.home(function)
        reached = _spread(home, function, set(), set(names)) if names else set()
        module.remembered[key] = () in _returned(home, function, reached)
    return bool(module.remembered[key])


def place_of(node: ast.AST) -> str | None:
    """Return the text of a name, a chain of attributes, or an item of one under a constant key."""
    if isinstance(node, ast.Subscript) and (key := constant(node.slice)) is not None:
        base = dotted(node.value)
        return f"{base}[{key!r}]" if base is not None else None
    return dotted(node)


def _part_of(module: SourceModule, value: ast.expr, key: object) -> tuple[set[ast.AST], set[str]]:
    """Return the expressions, and the places, that take one part of a tuple or dict which a call gives back."""
    outer = module.parents.get(value)
    if isinstance(outer, ast.Subscript) and constant(outer.slice) == key:
        return set(_above(module, outer)), set()
    targets = outer.targets if isinstance(outer, ast.Assign) else []
    found: set[str] = set()
    for target in targets:
        whole = isinstance(target, (ast.Tuple, ast.List))
        if whole and isinstance(key, int) and not any(isinstance(e, ast.Starred) for e in target.elts):  # type: ignore[attr-defined]
            found |= _stored(target.elts[key]) if key < len(target.elts) else set()  # type: ignore[attr-defined]
        elif (base := dotted(target)) is not None:
            found.add(f"{base}[{key!r}]")
    return set(), found


def _above(module: SourceModule, node: ast.AST) -> list[ast.AST]:
    """Return what an expression is part of, as far as its gradient alone decides about the whole's."""
    found: list[ast.AST] = [node]
    current = node
    while isinstance(parent := module.parents.get(current), (ast.expr, ast.keyword, ast.comprehension)):
        if not _hands_on(module, parent, current):
            break
        found.append(parent)
        current = parent
    return found


def _hands_on(module: SourceModule, parent: ast.AST, node: ast.AST) -> bool:
    """Tell whether a value flows into what it is part of; a factor of something else is only its weight."""
    match parent:
        case ast.Attribute():
            return parent.attr not in _CUTS
        case ast.Compare() | ast.Lambda() | ast.IfExp():
            return isinstance(parent, ast.IfExp) and parent.test is not node
        case ast.Subscript():
            return parent.value is node
        case ast.BinOp(op=ast.Mult() | ast.Div() | ast.MatMult()):
            return _is_coefficient(module, parent.right if parent.left is node else parent.left)
        case ast.Call() if parent.func is not node:
            name = module.qualify(parent.func) or ""
            return name in _HANDS_ON or name.startswith(_OF_TENSORS) or _gives_back(module, parent, node)
    return True


def loses_graph(value: ast.expr) -> bool:
    """Tell `loss.detach().cpu()`, `loss.item()`: what a chain of methods gives has no graph."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        if value.func.attr in _CUTS:
            return True
        value = value.func.value
    return False


def _is_coefficient(module: SourceModule, node: ast.expr) -> bool:
    """Tell a weight by its name, and a number by what is given for it: written, a default, or a setting."""
    if isinstance(node, (ast.Constant, ast.UnaryOp)) or _COEFFICIENT.search(ast.unparse(node)):
        return True
    if is_setting(module.resolver, node) or isinstance(literal(module, node), (int, float)):
        return True
    if not isinstance(node, ast.Name):
        return False
    functions = [each.parameter_of for each in module.names.bindings(node)]
    return any(each and isinstance(constant(default_of(each, node.id)), (int, float)) for each in functions)


def _gives_back(module: SourceModule, call: ast.Call, node: ast.AST) -> bool:
    """Tell whether a loss layer, a scaler, or a function of the program makes its result from what it is given."""
    receiver = receiver_of(call)
    if module.kind(call.func) == "loss" or (receiver is not None and module.kind(receiver) == "scaler"):
        return True
    function = module.functions.target(call)
    if function is None:
        return False
    given = node.value if isinstance(node, ast.keyword) else node
    return _is_made_of(module, function, frozenset(parameters_given(function, call, given)[:1]))


def _returned(module: SourceModule, function: Function, reached: set[ast.AST]) -> set[Position]:
    """Return where in its result a function gives back one of these expressions."""
    found: set[Position] = set()
    for value in module.functions.results(function):
        if isinstance(value, (ast.Tuple, ast.List)):
            found |= {(index,) for index, each in enumerate(value.elts) if each in reached}
        elif isinstance(value, ast.Dict):
            pairs = zip(value.keys, value.values, strict=True)
            found |= {
                (key.value,) for key, each in pairs if isinstance(key, ast.Constant) and each in reached
            }
        elif value in reached:
            found.add(())
    return found


# ── as far as a backward ──────────────────────────────────────────────────────────────────────


def goes_backward(module: SourceModule, value: ast.expr) -> bool:
    """Tell whether a loss is made of a value, here or behind the calls of the function in which it is computed."""
    waiting: list[tuple[ast.expr, Position]] = [(value, ())]
    seen: set[tuple[ast.expr, Position]] = set()
    while waiting:
        each, position = waiting.pop()
        if (each, position) in seen:
            continue
        seen.add((each, position))
        home = module.home(each)
        scope, reached = home.scope(each), flows_to(home, each, position)
        handed = module.program.answer(_losses_handed_on).get(scope, ())
        if any(loss in reached for loss in (*_losses_in(home).get(scope, ()), *handed)):
            return True
        if isinstance(scope, Function):
            positions = _returned(home, scope, reached)
            if position and any(each is given for given in home.functions.results(scope)):
                positions.add(position)
            if positions and _is_taken_backward(home, scope):
                return True
            followed = [each for each in home.program.entered_from(scope) if isinstance(each, ast.Call)]
            calls = list(
                dict.fromkeys([*home.functions.callers(scope), *applications(home, scope), *followed])
            )
            waiting += [(call, at) for call in calls for at in positions]
    return False


def _is_taken_backward(module: SourceModule, function: Function) -> bool:
    """Tell whether a library goes backward through what a function gives: a method it calls, a loss it is given."""
    return function in module.program.answer(_losses_given) or gives_loss(module, function)


def _losses_given(files: list[SourceModule]) -> set[Function | None]:
    """Return the functions that learners of Truestep's are given as their losses."""
    protocol = Protocol(files[0])
    calls = [
        call for each in files for call in [*each.method_calls("update"), *each.calls("truestep.update")]
    ]
    given = [loss for call in calls if (loss := protocol.loss_given(call)) is not None]
    return {files[0].functions.named(each) for each in given}


@answered_once
def _losses_in(module: SourceModule) -> dict[Scope, list[ast.expr]]:
    """Return what goes backward in each function of a file."""
    found: dict[Scope, list[ast.expr]] = {}
    for call, loss in _gone_backward(module):
        found.setdefault(module.scope(call), []).append(loss)
    return found


def _losses_handed_on(files: list[SourceModule]) -> dict[Scope, list[ast.expr]]:
    """Return what each function gives another one that goes backward through it, be it by a third."""
    found: dict[Scope, list[ast.expr]] = {}
    waiting = [(file, call, loss, 0) for file in files for call, loss in _gone_backward(file)]
    while waiting:
        file, call, loss, depth = waiting.pop()
        scope = file.scope(call)
        if not isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)) or depth > _HANDED_ON:
            continue
        names = {each.arg for each in [*scope.args.args, *scope.args.kwonlyargs]}
        for name in names.intersection(names_in(loss)):
            for caller in file.functions.callers(scope):
                given = argument_for(scope, caller, name)
                if given is not None:
                    home = file.home(caller)
                    found.setdefault(home.scope(caller), []).append(given)
                    waiting.append((home, caller, given, depth + 1))
    return found


def _gone_backward(module: SourceModule) -> Iterator[tuple[ast.Call, ast.expr]]:
    for call in [*module.method_calls("backward"), *module.method_calls("manual_backward")]:
        if isinstance(call.func, ast.Attribute):
            yield call, call.func.value
        if call.args:
            yield call, call.args[0]  # accelerator.backward(loss)


def _parts(node: ast.stmt) -> list[ast.AST]:
    """Return the expressions of a statement, without the statements within it."""
    own = [each for each in ast.iter_child_nodes(node) if not isinstance(each, (ast.stmt, ast.ExceptHandler))]
    return [each for part in own for each in walk(part)]


def _places_filled(node: ast.stmt, found: set[ast.AST]) -> set[str]:
    """Return the places that a statement gives a value that flows, and the lists it is put into."""
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign) and node.value in found:
        targets = node.targets
    elif (isinstance(node, (ast.AnnAssign, ast.AugAssign)) and node.value in found) or (
        isinstance(node, ast.For) and node.iter in found
    ):
        targets = [node.target]
    elif (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Attribute)
    ):
        call = node.value
        kept = place_of(call.func.value)  # type: ignore[attr-defined]
        if call.func.attr in _KEEPS and any(each in found for each in call.args) and kept:  # type: ignore[attr-defined]
            return {kept}
    return {place for target in targets for place in _stored(target)}


def _stored(target: ast.expr) -> set[str]:
    """Return the places that an assignment to this target fills."""
    stored = [
        each
        for each in walk(target)
        if isinstance(each, (ast.Name, ast.Attribute, ast.Subscript)) and isinstance(each.ctx, ast.Store)
    ]
    return {place for each in stored if (place := place_of(each)) is not None}
