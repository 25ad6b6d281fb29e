# SPDX-License-Identifier: Apache-2.0
"""A target network that stays at its start."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import QUESTION, RISK, At, SourceCheck
from truestep.doctor.source.averages import AVERAGED, WeightMixture, weight_mixtures
from truestep.doctor.source.live_variables import reads_followed
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted_name, method_of, receiver_of, walk
from truestep.doctor.source.training_actions import FOLLOW
from truestep.doctor.source.value_origins import is_call_of

_NAME = re.compile(r"(^|_)(target|ema)(_|$)|^(target|ema)(net|model)?$", re.IGNORECASE)
_QUIET = ("eval", "train", "requires_grad_", "to", "cuda")
_MOST = 0.9  # a share of the trained weights that was meant for the average's own


class TargetNeverUpdated(SourceCheck):
    """A target or EMA network is copied once and never updated, is the trained network itself, or is an average that nothing uses.

    Why: the targets come from the untrained copy for ever. Where the average is written the wrong way round,
    it also pulls the trained network back to the copy. Two names of one network are no copy: its targets move
    with each step.

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

    Fix: load_state_dict every so many steps, or lerp_ each parameter towards the trained one. Make the copy by
    copy.deepcopy(net).

    Evidence: the plain form of row 66 of docs/mistakes.md; bed B: 0 true, 2 debatable, 0 false.
    """

    code = "PARAM022"
    never = (FOLLOW,)
    words = ("target", "ema", "AveragedModel")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a copy so named that a training loop applies and nothing changes, and a second name that is taken for a copy."""
        named = [
            (statement, name)
            for statement in module.all(ast.Assign)
            for target in statement.targets
            if (name := dotted_name(target)) and _NAME.search(name.rsplit(".", 1)[-1])
        ]
        for statement, name in named:
            others = [each for each, other in named if other == name and each is not statement]
            if _is_alias_taken_for_copy(module, statement, name, others):
                text = f"{name!r} is {ast.unparse(statement.value)!r} itself, and no copy: both names are of one network."
                yield At(statement, text)
            if not isinstance(statement.value, ast.Call) or _is_remade_in_loop(module, [statement, *others]):
                continue
            uses = [use for each in module.reads(name) for use in reads_followed(module, each)]
            is_deep = module.qualify(_made_ready(statement.value).func) == "copy.deepcopy"
            first = [each for each in uses if _is_initial_copy(module, each)]
            uses = [each for each in uses if each not in first]
            mixed = _mixtures_into_other_network(module, name)
            uses = [
                each
                for each in uses
                if not any(_is_in_loop_writing_weights(module, each, one.node) for one in mixed)
            ]
            if (is_deep or first) and _only_applied(module, uses) and not _is_loaded_elsewhere(module, name):
                yield At(statement, _never_updated_message(name, mixed), RISK if mixed else QUESTION)
        yield from _find_too_fast_averages(module)
        yield from _averages_that_nothing_uses(module)


def _is_alias_taken_for_copy(
    module: SourceModule, statement: ast.Assign, name: str, others: list[ast.Assign]
) -> bool:
    """Tell `target = net` where the weights of one are then put into the other, or where it stands for a new copy."""
    network = statement.value
    if not isinstance(network, ast.Name | ast.Attribute) or module.kind(network) not in ("module", "ddp"):
        return False
    if module.loop(statement) is not None and any(isinstance(each.value, ast.Call) for each in others):
        return True
    source = ast.unparse(network)
    for call in module.all(ast.Call):
        given = " ".join(map(ast.unparse, call.args))
        is_copied = ast.unparse(call.func) == f"{name}.load_state_dict" and f"{source}.state_dict()" in given
        together = ast.unparse(call.func) == "zip" and all(
            re.search(rf"(?<![\w.]){re.escape(each)}\.(named_)?parameters\(", given)
            for each in (name, source)
        )
        if is_copied or together:
            return True
    return False


def _made_ready(call: ast.Call) -> ast.Call:
    """Return `copy.deepcopy(net)` of `copy.deepcopy(net).eval().requires_grad_(False)`."""
    while method_of(call) in _QUIET and isinstance(receiver := receiver_of(call), ast.Call):
        call = receiver
    return call


def _is_remade_in_loop(module: SourceModule, statements: list[ast.Assign]) -> bool:
    """Tell a target that a loop makes anew: by that it follows."""
    return len(statements) > 1 and any(module.loop(each) is not None for each in statements)


def _find_too_fast_averages(module: SourceModule) -> Iterator[At]:
    """Report an average so named that is made of the trained weights but for a small rest."""
    for each in weight_mixtures(module):
        parts = {
            each.into.name,
            each.into.model or "",
            *(dotted_name(part) or "" for part in walk(each.node)),
        }
        named = any(map(_NAME.search, ".".join(parts).split("."))) or is_call_of(module, each.node, AVERAGED)
        if named and each.into.model != each.of.model and each.share is not None and _MOST <= each.share < 1:
            text = f"{each.share:g} of {each.of.name!r} is written into {each.into.name!r}: it is almost the trained network."
            yield At(each.node, text, RISK)


def _averages_that_nothing_uses(module: SourceModule) -> Iterator[At]:
    """Report an average that is updated and otherwise only made ready: nothing evaluates, saves or gives it on."""
    for call in module.calls(AVERAGED):
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


def _mixtures_into_other_network(module: SourceModule, name: str) -> list[WeightMixture]:
    """Return where a network's weights are written into another one's; nothing where it follows that."""
    found = [each for each in weight_mixtures(module) if name in (each.into.model, each.of.model)]
    found = [each for each in found if each.into.model is not None]
    return [] if any(each.into.model == name for each in found) else found


def _is_loaded_elsewhere(module: SourceModule, name: str) -> bool:
    """Tell `agents[k].target_net.load_state_dict(...)` of a class's own network."""
    others = [each for each in module.read_under(name.rpartition(".")[2]) if dotted_name(each) != name]
    return any(_accessed_attribute(module, each) == "load_state_dict" for each in others)


def _is_in_loop_writing_weights(module: SourceModule, use: ast.expr, written: ast.expr) -> bool:
    """Tell what a loop goes through in which weights are written, or what they are written by."""
    loop = module.enclosing(use, ast.For)
    return written in module.ancestors(use) or (
        loop is not None and use in walk(loop.iter) and loop in module.ancestors(written)
    )


def _never_updated_message(name: str, mixed: list[WeightMixture]) -> str:
    text = f"{name!r} is applied, and nothing ever updates it"
    if mixed:
        text += f": line {mixed[0].node.lineno} reads it, and writes into the network that is trained"
    return f"{text}."


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
