# SPDX-License-Identifier: Apache-2.0
"""F.dropout that never stops."""

import ast
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

from truestep.doctor.check import ADVICE, BUG, QUESTION, RISK, At, SourceCheck, Unsure
from truestep.doctor.finding import Severity
from truestep.doctor.library.operations import operations
from truestep.doctor.source.memoized_walk import answered_once, walk_each_once
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import walk
from truestep.doctor.source.protocol_calls import Protocol
from truestep.doctor.source.rewriting import (
    Edits,
    SourceRewriteError,
    insert_behind,
    replace_node,
    set_keyword,
)
from truestep.doctor.source.untaken_branches import SettledValues, is_never_taken
from truestep.doctor.source.value_origins import (
    argument,
    calls_behind,
    constant,
    has_star_args,
    literal,
    value_origins,
)

_DRAWN = operations(numbers="drawn filled")
FUNCTIONS = operations(numbers="dropped")
_AT_INFERENCE = re.compile(
    r"(^|_|\b)mc[ _-]?(drop|sampl)|mcdrop|monte[ _-]?carlo|bayesian[ _-]?(net|nn|neural|dropout|layer)|epistemic"
    r"|(dropout|drops|dropping|active|enabled|on)\b[^.]{0,40}\b(at|during|in) (inference|test|prediction|evaluation)"
    r"|always[ _-]?(on|active|drop)",
    re.IGNORECASE,
)

_EVALUATES = re.compile(
    r"^no_grad$|^inference_mode$|^(is_)?train(ing)?_mode$|(^|_)(test|val|valid|validat|eval|infer|predict|score)",
    re.IGNORECASE,
)


class DropoutIgnoresMode(SourceCheck):
    """F.dropout is called without `training`, so it drops in evaluation too.

    Why: its default is training=True; net.eval() does not reach it. Predictions are random.

    Bad:
        class Net(nn.Module):
            def forward(self, x):
                return F.dropout(x, 0.5)  # here

    Good:
        class Net(nn.Module):
            def forward(self, x):
                return F.dropout(x, 0.5, training=self.training)

    Fix: F.dropout(x, p, training=self.training), or an nn.Dropout layer.

    Evidence: THUDM/CogDL 281f4742 cogdl/models/nn/ppnp.py:75; corpus, 186 repositories, beds A, E, F, H, I, K,
    M, N, Q, R, S, U, V, W, X, Y: 66 true, 31 debatable, 15 false.
    """

    code = "EVAL001"
    words = ("dropout",)

    def read(self, module: SourceModule) -> Iterator[At | Unsure]:
        """Report the call without it, or with a literal True, inside of a module."""
        for name in sorted(FUNCTIONS):
            for call in module.calls(f"torch.nn.functional.{name}"):
                training = argument(call, 2, "training")
                if has_star_args(call) or (training is not None and literal(module, training) is not True):
                    continue
                decided = _under_mode(module, call) if training is not None else _asks_for_mode(module, call)
                if decided or _is_dropout_of_noise(module, call):
                    continue
                if _never_drops(module, call, argument(call, 1, "p")):
                    yield Unsure(call, "nothing in sight sets its rate")
                    continue
                how = "without `training`" if training is None else "with training=True"
                yield At(
                    call,
                    f"F.{name} {how} drops in evaluation too.",
                    # written out it is meant, as a sampler's or a decoder's noise may be
                    QUESTION if training is not None or _is_meant(module, call) else _severity(module, call),
                )
        for call in module.calls("torch.nn.functional.scaled_dot_product_attention"):
            rate = argument(call, 4, "dropout_p")
            if rate is not None and _never_drops(module, call, rate):
                yield Unsure(call, "nothing in sight sets its rate")
            elif rate is not None and not _follows_mode(module, call):
                severity = QUESTION if _is_meant(module, call) else BUG
                yield At(
                    call,
                    "F.scaled_dot_product_attention has no mode: this dropout_p drops in evaluation too.",
                    severity,
                )

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Pass the mode of the module on."""
        method = module.enclosing(node, ast.FunctionDef)
        if method is None or not method.args.args or method.args.args[0].arg != "self":
            raise SourceRewriteError
        rate = argument(node, 4, "dropout_p")
        if rate is not None:
            return [insert_behind(module, rate, " if self.training else 0.0")]
        if len(node.args) > 2:
            return [replace_node(module, node.args[2], "self.training")]
        return [set_keyword(module, node, "training", "self.training")]


def _never_drops(module: SourceModule, call: ast.Call, rate: ast.expr | None) -> bool:
    """Tell a rate that is 0 in every run in sight, and a branch that none takes."""
    return SettledValues(module).of(rate) in (0, None) or is_never_taken(module, call)


def _follows_mode(module: SourceModule, call: ast.Call) -> bool:
    """Tell whether anything around the call asks for the mode, or its rate is the caller's to give."""
    given = _is_rate_from_caller(module, argument(call, 4, "dropout_p"))
    return _asks_for_mode(module, call) or given or has_star_args(call)


def _asks_for_mode(module: SourceModule, call: ast.Call) -> bool:
    """Tell whether a test in the function asks whether it is trained."""
    home = module.scope(call)
    return any(node.attr == "training" and module.scope(node) is home for node in module.all(ast.Attribute))


def _under_mode(module: SourceModule, call: ast.Call) -> bool:
    """Tell whether a test of the mode stands around the call."""
    tests = [each.test for each in module.ancestors(call) if isinstance(each, (ast.If, ast.IfExp))]
    return any(getattr(part, "attr", "") == "training" for test in tests for part in walk(test))


def _is_dropout_of_noise(module: SourceModule, call: ast.Call) -> bool:
    """Tell dropout of what is drawn, or of ones: a mask or noise made by hand, in whatever mode."""
    begun = [each for each in value_origins(module, call.args[0]) if each is not None] if call.args else []
    made = [
        each
        for each in walk_each_once(begun, partial(_factors_or_returned_values, module))
        if isinstance(each, ast.Call)
    ]
    if any(module.home(each).kind(each.func) in ("module", "ddp") for each in made):
        return False
    names = [(module.home(each).qualify(each.func) or "").removeprefix("torch.") for each in made]
    return any(each in _DRAWN for each in names)


def _factors_or_returned_values(module: SourceModule, value: ast.expr) -> list[ast.expr]:
    """Return the factors of `noise * temperature`, and what a function gives."""
    match value:
        case ast.BinOp(left=left, op=ast.Mult() | ast.Div(), right=right):
            return [
                each for part in (left, right) for each in value_origins(module, part) if each is not None
            ]
        case ast.IfExp(body=body, orelse=orelse):
            return [body, orelse]
        case ast.Call(func=ast.Name() as name):
            home = module.home(value)
            written = [each.body for each in home.definitions(name) if isinstance(each, ast.Lambda)]
            return [*written, *home.functions.results(home.functions.target(value))]
    return []


def _severity(module: SourceModule, call: ast.Call) -> Severity:
    """Outside of a module nothing says that the function is evaluated, and whoever gives the rate may give 0."""
    owner = module.enclosing(call, ast.ClassDef)
    rate = argument(call, 1, "p")
    if owner is None and rate is not None and constant(rate) is None:
        return QUESTION  # of a script's own inputs, as noise to learn from, at a rate of its options
    if owner is not None and (_is_critic_network(module, owner) or _is_evaluated_by_method(module, owner)):
        return ADVICE
    is_layer = owner in module.kinds.classes_of("module") and _is_evaluated(module, owner)
    return BUG if is_layer and not _is_rate_from_caller(module, argument(call, 1, "p")) else RISK


def _is_evaluated(module: SourceModule, owner: ast.ClassDef | None) -> bool:
    """Tell whether anything in the program may evaluate it: it is named there, and so is an evaluation or no training."""
    names = module.program.identifiers
    may_be_made = module.program.is_imported() or (owner is not None and owner.name in names)
    return may_be_made and ("backward" not in names or any(map(_EVALUATES.search, names)))


@answered_once
def _is_evaluated_by_method(module: SourceModule, owner: ast.ClassDef) -> bool:
    """Tell a network whose every output is learned from, while a method of its own is called of what it has learned."""
    applied, learned = _applications(module, owner)
    own = {each.name for each in owner.body if isinstance(each, ast.FunctionDef)} - {"forward", "__init__"}
    called = {
        each.func.attr
        for file in module.program.linked
        for each in file.all(ast.Call)
        if isinstance(each.func, ast.Attribute) and file.enclosing(each, ast.ClassDef) is not owner
    }
    return bool(applied) and learned.issuperset(call for _, call in applied) and not own.isdisjoint(called)


def _applications(
    module: SourceModule, owner: ast.ClassDef
) -> tuple[list[tuple[SourceModule, ast.Call]], set[ast.Call]]:
    """Return the calls of networks of a class, each with its file, and all calls that a backward pass learns from."""
    files = module.program.linked
    losses = [
        (each, Protocol(each).loss_taken(call)) for each in files for call in each.method_calls("backward")
    ]
    learned = {call for each, loss in losses if loss is not None for call in calls_behind(each, loss)}
    calls = [(each, call) for each in files for call in each.all(ast.Call)]
    return [(each, call) for each, call in calls if owner in _classes_applied(each, call)], learned


def _classes_applied(module: SourceModule, call: ast.Call) -> list[ast.ClassDef | None]:
    """Return the classes of which the object that is called may be."""
    if module.kind(call.func) not in ("module", "ddp"):
        return []
    made = [each for each in value_origins(module, call.func) if isinstance(each, ast.Call)]
    return [module.classes.of(call.func), *(module.home(each).classes.named(each.func) for each in made)]


@answered_once
def _is_critic_network(module: SourceModule, owner: ast.ClassDef) -> bool:
    """Tell a network that judges data and what another one makes, and whose every output is learned from: none evaluates it."""
    applied, learned = _applications(module, owner)
    made = {
        any(each.kind(part.func) == "module" for given in call.args for part in calls_behind(each, given))
        for each, call in applied
    }
    return made == {True, False} and learned.issuperset(call for _, call in applied)


def _is_meant(module: SourceModule, call: ast.Call) -> bool:
    """Tell what a name or a docstring around says: dropout at inference draws one of many predictions."""
    around = [each for each in module.ancestors(call) if isinstance(each, (ast.ClassDef, ast.FunctionDef))]
    owners = [
        base for each in around if isinstance(each, ast.ClassDef) for base in module.classes.lineage(each)
    ]
    told = [text for each in [*around, *owners] for text in (each.name, ast.get_docstring(each) or "")]
    return any(_AT_INFERENCE.search(text) for text in told)


def _is_rate_from_caller(module: SourceModule, rate: ast.expr | None) -> bool:
    """Tell a rate that the caller of the function gives, by a parameter or among its words: `kwargs.get("dropout_p", 0.0)`."""
    if not isinstance(rate, ast.Name):
        return rate is not None and _is_read_from_kwargs(module, rate)
    return any(
        each.how == "parameter" or (each.value is not None and _is_read_from_kwargs(module, each.value))
        for each in module.names.bindings(rate)
    )


def _is_read_from_kwargs(module: SourceModule, value: ast.expr) -> bool:
    """Tell what is looked up in the `**kwargs` of the function around."""
    match value:
        case ast.BoolOp(values=[first, *_]):
            return _is_read_from_kwargs(module, first)
        case ast.Call(func=ast.Attribute(value=ast.Name() as held)) | ast.Subscript(value=ast.Name() as held):
            scope = module.scope(held)
            words = scope.args.kwarg if isinstance(scope, ast.FunctionDef) else None
            return words is not None and words.arg == held.id
    return False
