# SPDX-License-Identifier: Apache-2.0
"""An old policy or a target network that begins with other weights."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function, assignment_target, dotted_name, last_part
from truestep.doctor.source.value_origins import constant, resolve_expression

_NAME = re.compile(r"(^|_)(old|target)(_|$)")

_SETS = (
    "cuda", "eval", "load_state_dict", "modules", "named_parameters", "parameters", "requires_grad_", "state_dict", "to",
    "train",
)  # fmt: skip


class CopyStartsApart(SourceCheck):
    """A network that is later set to another's weights begins with random ones of its own.

    Why: until the first copy its outputs have nothing to do with the network that is trained.

    Bad:
        class Agent:
            def __init__(self):
                self.policy = nn.Linear(4, 2)
                self.policy_old = nn.Linear(4, 2)  # here

            def update(self):
                self.policy_old.load_state_dict(self.policy.state_dict())

    Good:
        class Agent:
            def __init__(self):
                self.policy = nn.Linear(4, 2)
                self.policy_old = nn.Linear(4, 2)
                self.policy_old.load_state_dict(self.policy.state_dict())

            def update(self):
                self.policy_old.load_state_dict(self.policy.state_dict())

    Fix: load_state_dict right after both are made, or copy.deepcopy.

    Evidence: 186 repositories, beds A, H, L, Q, S, U, V: 7 true, 4 false.
    """

    code = "PARAM035"
    words = ("load_state_dict",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report two networks made alike in one function, of which one is copied to the other elsewhere only."""
        for node in module.all(ast.Assign):
            place = dotted_name(node.targets[0]) or ""
            last = place.rsplit(".", 1)[-1]
            if not (isinstance(resolve_expression(module, node.value), ast.Call) and _NAME.search(last)):
                continue
            origin = _name_constructed_alike(module, node)
            copies = [
                each for each in module.method_calls("load_state_dict") if _owner_name(each.func) == last
            ]
            if origin is None or not copies or not all(_copies_state(module, each) for each in copies):
                continue
            if _are_weights_set_by_owner(module, node) or any(
                _is_copy_called_at_start(module, node, each) for each in copies
            ):
                continue
            if _is_copied_before_use(module, last, copies):
                continue
            if not any(module.scope(each) is module.scope(node) for each in copies) and not _is_passed_on(
                module, node, place
            ):
                yield At(
                    node, f"{place!r} has random weights of its own until {origin!r} is copied to it.", RISK
                )


def _name_constructed_alike(module: SourceModule, node: ast.Assign) -> str | None:
    """Return the other place in this function that is made by a call of the same form; another name is no copy."""
    scope, mine = module.scope(node), _constructing_expression(module, node)
    for each in module.all(ast.Assign):
        if each is node or module.scope(each) is not scope:
            continue
        made = _constructing_expression(module, each)
        if made is not mine and ast.dump(made) == ast.dump(mine):
            other = dotted_name(each.targets[0])
            if other is not None and module.kind(each.targets[0]) in ("module", None):
                return other
    return None


def _constructing_expression(module: SourceModule, node: ast.Assign) -> ast.expr:
    return resolve_expression(module, node.value) or node.value


def _are_weights_set_by_owner(module: SourceModule, node: ast.Assign) -> bool:
    """Tell whether the function that makes a network which is handed on here sets its weights, too."""
    made = _constructing_expression(module, node)
    home = module.home(made)
    scope, statement = home.scope(made), home.statement(made)
    if scope is module.scope(node) or not isinstance(statement, ast.Assign):
        return False
    stored = statement.targets[0]
    copies = [each for each in home.method_calls("load_state_dict") if home.scope(each) is scope]
    return any(
        dotted_name(stored) == dotted_name(each.func.value)
        for each in copies
        if isinstance(each.func, ast.Attribute)
    )


def _is_copy_called_at_start(module: SourceModule, node: ast.Assign, copy: ast.Call) -> bool:
    """Tell a copy in a function that what makes the networks calls behind that line, or whoever makes their owner, once."""
    scope = module.scope(copy)
    if not isinstance(scope, Function) or not _is_run_at_first_call(module, copy):
        return False
    return any(
        _is_called_after_creation(module, node, call)
        for call in _direct_and_outer_calls(module, scope, set())
    )


def _direct_and_outer_calls(
    module: SourceModule, function: Function, seen: set[Function]
) -> Iterator[ast.Call]:
    """Yield the calls of a function, and of those that call it at their top."""
    for call in module.functions.callers(function):
        yield call
        home = module.home(call)
        scope = home.scope(call)
        if isinstance(scope, ast.Lambda | ast.Module) or scope in seen:
            continue
        if home.statement(call) in scope.body:
            yield from _direct_and_outer_calls(module, scope, seen | {scope})


def _is_called_after_creation(module: SourceModule, node: ast.Assign, call: ast.Call) -> bool:
    """Tell a call behind the networks in the function that makes them, or behind `agent = Agent()` and in no loop."""
    home, maker = module.home(call), module.scope(node)
    tests = [each for each in home.ancestors(call) if isinstance(each, (ast.If, ast.Try))]
    if home.loop(call) is not None or any(maker not in home.ancestors(each) for each in tests):
        return False
    if home.scope(call) is maker:
        return call.lineno > node.lineno and not tests
    makers = module.functions.callers(maker) if isinstance(maker, Function) else []
    return not tests and any(
        home.scope(each) is home.scope(call) and each.lineno <= call.lineno and home.loop(each) is None
        for each in makers
        if module.home(each) is home
    )


def _is_copied_before_use(module: SourceModule, name: str, copies: list[ast.Call]) -> bool:
    """Tell a network that only one function uses, which sets its weights before that, in its first call, too."""
    uses = [each for each in module.program.attributes_read.get(name, ()) if _is_network_called(module, each)]
    return bool(uses) and any(
        all(
            module.home(each).scope(each) is module.scope(copy) and each.lineno > copy.lineno for each in uses
        )
        and _is_run_at_first_call(module, copy)
        for copy in copies
    )


def _is_network_called(module: SourceModule, network: ast.Attribute) -> bool:
    """Tell `self.target(x)` and `self.target.act(x)` from what sets, moves or lists its weights."""
    above = module.home(network).parents[network]
    if isinstance(above, ast.Attribute):
        return above.attr not in _SETS
    return not isinstance(above, ast.Assign)


def _is_run_at_first_call(module: SourceModule, copy: ast.Call) -> bool:
    """Tell what is done at the first call already: under no test, or at each so many calls counted from 0."""
    scope = module.scope(copy)
    tests = [each.test for each in module.ancestors(copy) if isinstance(each, ast.If)]
    loops = [each for each in module.ancestors(copy) if isinstance(each, ast.For | ast.While)]
    inside = [each for each in module.ancestors(copy) if each is scope]
    return bool(inside) and not loops and all(_is_true_at_first_call(module, test, copy) for test in tests)


def _is_true_at_first_call(module: SourceModule, test: ast.expr, copy: ast.Call) -> bool:
    match test:
        case ast.Compare(
            left=ast.BinOp(left=counter, op=ast.Mod()), ops=[ast.Eq()], comparators=[ast.Constant(0)]
        ):
            pass
        case ast.UnaryOp(op=ast.Not(), operand=ast.BinOp(left=counter, op=ast.Mod())):
            pass
        case _:
            return False
    text, scope = ast.unparse(counter), module.scope(copy)
    stores = [each for each in module.stores if ast.unparse(assignment_target(each)) == text]
    first = [each for each in stores if module.scope(each) is not scope]
    starts = bool(first) and all(isinstance(each, ast.Assign) and constant(each.value) == 0 for each in first)
    return starts and all(each.lineno > copy.lineno for each in stores if module.scope(each) is scope)


def _owner_name(function: ast.expr) -> str:
    owner = function.value if isinstance(function, ast.Attribute) else function
    return last_part(owner)


def _copies_state(module: SourceModule, call: ast.Call) -> bool:
    given = resolve_expression(module, call.args[0]) if call.args else None
    return (
        isinstance(given, ast.Call)
        and isinstance(given.func, ast.Attribute)
        and given.func.attr == "state_dict"
    )


def _is_passed_on(module: SourceModule, node: ast.Assign, place: str) -> bool:
    """Tell whether the function that makes both hands the copy on: what happens to it is not known."""
    scope = module.scope(node)
    for each in module.reads(place):
        parent = module.parents[each]
        if module.scope(each) is scope and isinstance(parent, (ast.Call, ast.keyword, ast.Tuple, ast.List)):
            return True
    return False
