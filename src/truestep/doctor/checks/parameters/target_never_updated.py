# SPDX-License-Identifier: Apache-2.0
"""A target network that stays at its start."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import QUESTION, RISK, At, SourceCheck
from truestep.doctor.source.live_variables import reads_followed
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted_name, method_of, receiver_of
from truestep.doctor.source.training_actions import FOLLOW

_NAME = re.compile(r"(^|_)(target|ema)(_|$)|^(target|ema)(net|model)?$", re.IGNORECASE)
_AVERAGED = "torch.optim.swa_utils.AveragedModel"
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
