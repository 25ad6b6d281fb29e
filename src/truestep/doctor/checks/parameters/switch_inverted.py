# SPDX-License-Identifier: Apache-2.0
"""A switch that does the opposite of what it is called."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import walk
from truestep.doctor.source.signatures import own_name
from truestep.doctor.source.uses import arms

_LEARNS = re.compile(
    r"(^|_)(learnable|learned|trainable|tunable|fine_?tune|unfreeze|unfrozen|requires?_?grad|with_grad|enable_grad"
    r"|keep_grad|train_(?!mode|step|epoch|data|loader|set|size|iter|split)\w+|learn_(?!rate|r)\w+)",
)
_RESTS = re.compile(r"(^|_)(freeze|frozen|fix(ed)?_(?!seed|size|len)\w+|stop_grad\w*|detach\w*|no_grad)")
_NOT = re.compile(r"(^|_)(not?|non|un|dis(able)?|without|skip)(_|$)")


class SwitchInverted(SourceCheck):
    """A switch whose name says that something learns cuts its gradient, or one that says that it rests lets it through.

    Why: the part that should be trained stands still, and the other way round.

    Bad:
        class Codebook(nn.Module):
            def __init__(self, learnable):
                super().__init__()
                self.learnable = learnable
                self.embed = nn.Parameter(torch.randn(8, 4))

            def forward(self, x):
                embed = self.embed.detach() if self.learnable else self.embed  # here
                return x @ embed.t()

    Good:
        class Codebook(nn.Module):
            def __init__(self, learnable):
                super().__init__()
                self.learnable = learnable
                self.embed = nn.Parameter(torch.randn(8, 4))

            def forward(self, x):
                embed = self.embed if self.learnable else self.embed.detach()
                return x @ embed.t()

    Fix: exchange the two arms, or put `not` before the switch.
    """

    code = "PARAM039"

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a choice between a value and its detached self, and a gradient switched by a name that says the opposite."""
        if "torch" not in module.text:
            return
        for function in module.functions:
            names = [each.arg for each in [*function.args.args, *function.args.kwonlyargs]]
            asked = [each for each in names if each in _ASKED]
            for given in _all_detached(module, function) if asked else ():
                yield At(
                    given,
                    f"{asked[0]!r} is asked for, and what is returned is detached whatever it says.",
                    RISK,
                )
        for node, switch, lets_through in [*_choices(module), *_settings(module)]:
            says = _says(switch)
            if says is not None and says is not lets_through:
                what = "lets the gradient through" if lets_through else "cuts the gradient"
                yield At(node, f"{ast.unparse(switch)!r} {what} where it holds.", RISK)


_ASKED = ("enable_grad", "requires_grad", "with_grad", "keep_grad", "differentiable", "create_graph")


def _all_detached(
    module: SourceModule, function: ast.FunctionDef | ast.AsyncFunctionDef
) -> Iterator[ast.Return]:
    """Yield the returns of a function, or of one within it, that detach all they give, and stand under no test."""
    for node in walk(function):
        if not isinstance(node, ast.Return) or node.value is None:
            continue
        parts = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
        if all(_detached(each) is not None for each in parts) and module.enclosing(node, ast.If) is None:
            yield node


def _says(switch: ast.expr) -> bool | None:
    """Return whether a name says that something learns (True) or rests (False)."""
    if isinstance(switch, ast.UnaryOp) and isinstance(switch.op, ast.Not):
        inner = _says(switch.operand)
        return None if inner is None else not inner
    if isinstance(switch, ast.Attribute) and switch.attr == "requires_grad":
        return None  # a tensor's own: `x.detach() if x.requires_grad else x` is meant so
    name = (own_name(switch) or "").lower()
    learns, rests = bool(_LEARNS.search(name)), bool(_RESTS.search(name))
    return None if learns is rests else learns is not bool(_NOT.search(name))


def _choices(module: SourceModule) -> Iterator[tuple[ast.AST, ast.expr, bool]]:
    """Yield `x.detach() if switch else x`, and the same written as an `if`, with whether it holds for the gradient."""
    for node in module.all(ast.IfExp):
        if (through := _whole_first(node.body, node.orelse)) is not None:
            yield node, node.test, through
    for statement in module.all(ast.If):
        test, body, orelse = arms(statement)
        if len(body) == 1 and len(orelse) <= 1:
            first, second = _stored(body[0]), _stored(orelse[0]) if orelse else None
            if first is None or (orelse and (second is None or second[0] != first[0])):
                continue
            through = _whole_first(first[1], second[1] if second else ast.parse(first[0], mode="eval").body)
            if through is not None:
                yield body[0], test, through


def _stored(node: ast.stmt) -> tuple[str, ast.expr] | None:
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        return ast.unparse(node.targets[0]), node.value
    return None


def _whole_first(body: ast.expr, orelse: ast.expr) -> bool | None:
    """Return whether the first of two is a value whose detached self is the second; None where they are not so."""
    if _detached(body) == ast.unparse(orelse):
        return False
    return True if _detached(orelse) == ast.unparse(body) else None


def _detached(node: ast.expr) -> str | None:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "detach":
        return ast.unparse(node.func.value)
    return None


def _settings(module: SourceModule) -> Iterator[tuple[ast.AST, ast.expr, bool]]:
    """Yield what sets whether something gets a gradient, with the name that decides."""
    for call in [*module.method_calls("requires_grad_"), *module.calls("torch.set_grad_enabled")]:
        if len(call.args) == 1:
            yield call, call.args[0], True
    for node in module.all(ast.Assign):
        if isinstance(node.targets[0], ast.Attribute) and node.targets[0].attr == "requires_grad":
            yield node, node.value, True
