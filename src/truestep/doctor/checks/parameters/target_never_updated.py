# SPDX-License-Identifier: Apache-2.0
"""A target network that stays at its start."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import BUG, QUESTION, RISK, At, SourceCheck
from truestep.doctor.source.live_variables import reads_followed
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted_name, method_of, receiver_of, walk
from truestep.doctor.source.training_actions import FOLLOW
from truestep.doctor.source.value_origins import resolve_expression

_NAME = re.compile(r"(^|_)(target|ema)(_|$)|^(target|ema)(net|model)?$", re.IGNORECASE)
_AVERAGED = "torch.optim.swa_utils.AveragedModel"
_REPEATED = (ast.For, ast.While, ast.FunctionDef)
_QUIET = ("eval", "train", "requires_grad_", "to", "cuda")


class TargetNeverUpdated(SourceCheck):
    """A target or EMA network is copied once and never updated, or is an average that nothing uses.

    Why: the targets come from the untrained copy for ever.

    Bad:
        target_net = copy.deepcopy(net)  # here
        for x, y in loader:
            opt.zero_grad()
            F.mse_loss(net(x), target_net(x).detach()).backward()
            opt.step()

    Good:
        target_net = copy.deepcopy(net)
        for x, y in loader:
            opt.zero_grad()
            F.mse_loss(net(x), target_net(x).detach()).backward()
            opt.step()
            target_net.load_state_dict(net.state_dict())

    Fix: load_state_dict every so many steps, or lerp_ each parameter towards the trained one.

    Evidence: the plain form of row 66 of docs/mistakes.md; bed B: 0 true, 2 debatable, 0 false.
    """

    code = "PARAM022"
    never = (FOLLOW,)
    words = ("target", "ema", "AveragedModel")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a copy so named that a training loop applies and nothing changes, and an average that nothing uses."""
        named = [
            (statement, name)
            for statement in module.all(ast.Assign)
            for target in statement.targets
            if (name := dotted_name(target)) and _NAME.search(name.rsplit(".", 1)[-1])
        ]
        for statement, name in named:
            others = [each for each, other in named if other == name and each is not statement]
            if not isinstance(statement.value, ast.Call) or _is_remade_in_loop(module, [statement, *others]):
                continue
            uses = [use for each in module.reads(name) for use in reads_followed(module, each)]
            is_deep = module.qualify(_made_ready(statement.value).func) == "copy.deepcopy"
            first = [each for each in uses if _is_initial_copy(module, each)]
            uses = [each for each in uses if each not in first]
            if (is_deep or first) and _only_applied(module, uses) and not _is_loaded_elsewhere(module, name):
                yield At(statement, f"{name!r} is applied, and nothing ever updates it.", QUESTION)
        yield from _averages_that_nothing_uses(module)
        yield from _updates_of_the_network_itself(module)


def _made_ready(call: ast.Call) -> ast.Call:
    """Return `copy.deepcopy(net)` of `copy.deepcopy(net).eval().requires_grad_(False)`."""
    while method_of(call) in _QUIET and isinstance(receiver := receiver_of(call), ast.Call):
        call = receiver
    return call


def _is_remade_in_loop(module: SourceModule, statements: list[ast.Assign]) -> bool:
    """Tell a target that a loop makes anew: by that it follows."""
    return len(statements) > 1 and any(module.loop(each) is not None for each in statements)


def _averages_that_nothing_uses(module: SourceModule) -> Iterator[At]:
    """Report an average that is updated and otherwise only made ready: nothing evaluates, saves or gives it on."""
    for call in module.calls(_AVERAGED):
        statement = module.statement(call)
        name = dotted_name(statement.targets[0]) if isinstance(statement, ast.Assign) else None
        if name is None:
            continue
        last = name.rpartition(".")[2]
        others = any(file.read_under(last) for file in module.program.linked if file is not module)
        uses = [use for each in module.read_under(last) for use in reads_followed(module, each)]
        done = {_accessed_attribute(module.home(each), each) for each in uses}
        if not others and "update_parameters" in done and done <= {"update_parameters", *_QUIET}:
            yield At(
                call,
                f"{name!r} is updated, and nothing evaluates or saves it: the averaging changes nothing.",
                RISK,
            )


def _updates_of_the_network_itself(module: SourceModule) -> Iterator[At]:
    """Report `target.load_state_dict(net.state_dict())` and its like where both names stand for one object."""
    for target, source in _updates_by_another(module):
        made, other = (resolve_expression(module, each) for each in (target, source))
        names = [ast.unparse(each) for each in (target, source)]
        if not isinstance(made, ast.Call) or made is not other or names[0] == names[1]:
            continue
        # a comprehension makes another one each time
        if not any(isinstance(each, (ast.ListComp, ast.GeneratorExp)) for each in module.ancestors(made)):
            yield At(
                target, f"{names[0]!r} is {names[1]!r} itself, no copy of it: this changes nothing.", BUG
            )


def _updates_by_another(module: SourceModule) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield what follows another network while that one is trained, and the other."""
    for call in module.method_calls("load_state_dict"):
        target, source = receiver_of(call), _owner_of(call.args[0] if call.args else None, "state_dict")
        if target is not None and source is not None and module.enclosing(call, *_REPEATED):
            yield target, source
    for call in module.calls("zip"):
        loop, pair = module.parents[call], [_owner_of(each, "parameters") for each in call.args]
        if (
            len(pair) == 2
            and pair[0]
            and pair[1]
            and isinstance(loop, ast.For)
            and _is_first_written_to(loop)
        ):
            yield pair[0], pair[1]


def _owner_of(call: ast.expr | None, method: str) -> ast.expr | None:
    """Return net of `net.parameters()`."""
    return receiver_of(call) if isinstance(call, ast.Call) and method_of(call) == method else None


def _is_first_written_to(loop: ast.For) -> bool:
    """Tell `for average, weight in zip(...): average.lerp_(weight, 0.01)`, or `average.data = ...`."""
    first = dotted_name(loop.target.elts[0]) if isinstance(loop.target, ast.Tuple) else None
    calls = [each for each in walk(loop) if isinstance(each, ast.Call)]
    written = [receiver_of(each) for each in calls if (method_of(each) or "").endswith("_")]
    written += [each.targets[0] for each in walk(loop) if isinstance(each, ast.Assign)]
    names = [(dotted_name(each) or "").removesuffix(".data") for each in written if each is not None]
    return first is not None and first in names


def _is_loaded_elsewhere(module: SourceModule, name: str) -> bool:
    """Tell `agents[k].target_net.load_state_dict(...)` of a class's own network."""
    others = [each for each in module.read_under(name.rpartition(".")[2]) if dotted_name(each) != name]
    return any(_accessed_attribute(module, each) == "load_state_dict" for each in others)


def _only_applied(module: SourceModule, uses: list[ast.expr]) -> bool:
    """Each use but for the assignment is a call, or a change of mode."""
    trains = any(trace.learning_loops() for trace in module.traces)
    applied = [each for each in uses if module.index.is_called(each)]
    rest = [each for each in uses if each not in applied and _accessed_attribute(module, each) not in _QUIET]
    rest = [each for each in rest if not _is_passed_to_track(module, each)]
    taken = [each for each in applied if not _is_result_discarded(module, each)]
    return trains and bool(taken) and not rest


def _is_passed_to_track(module: SourceModule, use: ast.expr) -> bool:
    """Tell `run.track(target=target)`, which keeps it as it is."""
    call = module.parents[module.parents[use]]
    return isinstance(call, ast.Call) and use not in call.args and method_of(call) == "track"


def _is_initial_copy(module: SourceModule, use: ast.expr) -> bool:
    """Tell `target.load_state_dict(net.state_dict())` where it is made, and not in a loop or a function that others call."""
    if _accessed_attribute(module, use) != "load_state_dict" or module.loop(use) is not None:
        return False
    call = module.parents[module.parents[use]]
    is_copied = isinstance(call, ast.Call) and bool(call.args) and "state_dict" in ast.unparse(call.args[0])
    function = module.enclosing(use, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    return is_copied and (function is None or getattr(function, "name", "") == "__init__")


def _is_result_discarded(module: SourceModule, applied: ast.expr) -> bool:
    """Tell `_ = target(x)`: applied only to be made ready, and its result is nobody's target."""
    statement, call = module.statement(applied), module.parents[applied]
    names = [dotted_name(each) or "" for each in getattr(statement, "targets", ())]
    alone = isinstance(statement, ast.Expr) and statement.value is call
    return alone or (bool(names) and all(set(each) == {"_"} for each in names))


def _accessed_attribute(module: SourceModule, node: ast.expr) -> str | None:
    parent = module.parents[node]
    return parent.attr if isinstance(parent, ast.Attribute) else None
