# SPDX-License-Identifier: Apache-2.0
"""cudnn.benchmark beside deterministic."""

import ast
import re
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import ADVICE, RISK, At, SourceCheck
from truestep.doctor.source.arguments import argument_for
from truestep.doctor.source.live_variables import are_in_other_arms
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function
from truestep.doctor.source.rewriting import Edits, remove_statement
from truestep.doctor.source.value_origins import literal

_TRAINS = ("backward", "grad", "step", "learn", "unknown")
_CONVOLVES = re.compile(r"conv(olution|_?transpose)?[_123]|torchvision|\btimm\b", re.IGNORECASE)


class BenchmarkBesideDeterministic(SourceCheck):
    """cudnn.benchmark is switched on beside cudnn.deterministic.

    Why: the auto-tuner picks the fastest algorithm anew in each run: results differ although each one is
    deterministic.

    Bad:
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = True  # here

    Good:
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = False

    Fix: benchmark only for speed, with fixed shapes, where repeatability does not matter.

    Evidence: 186 repositories, beds B, E, F, G, H, I, L, O, R, T, V, X, Y: 28 true, 2 debatable, 7 false.
    """

    code = "SEED003"
    words = ("benchmark",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report both set to True in one function."""
        set_true: dict[str, ast.Assign] = {}
        for node in module.all(ast.Assign):
            name = module.qualify(node.targets[0]) or ""
            if (
                name.startswith("torch.backends.cudnn.")
                and isinstance(node.value, ast.Constant)
                and node.value.value is True
            ):
                set_true[name.rsplit(".", 1)[-1]] = node
        first, second = set_true.get("deterministic"), set_true.get("benchmark")
        if first is None or second is None or module.scope(first) is not module.scope(second):
            return
        if are_in_other_arms(module, first, second) or not _can_both_run(module, first, second):
            return
        if not _trains_nothing(module, second):
            text = "The auto-tuner chooses anew in each run, although deterministic is asked for."
            yield At(second, text, RISK if _can_have_convolution(module) else ADVICE)

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Leave out the auto-tuner."""
        return [remove_statement(module, node)]


def _trains_nothing(module: SourceModule, node: ast.AST) -> bool:
    """Tell a place from whose every way nothing is trained: a script that times a model, or counts its parameters."""
    ways = list(module.program.traces_through(node))
    return bool(ways) and not any(each.of(*_TRAINS) for each in ways)


def _can_have_convolution(module: SourceModule) -> bool:
    """Tell whether the program may have a convolution, all that is tuned: its training is out of sight, or it names one."""
    texts = [each.text for each in module.program.linked]
    return not any("backward" in each for each in texts) or any(map(_CONVOLVES.search, texts))


def _can_both_run(module: SourceModule, first: ast.Assign, second: ast.Assign) -> bool:
    """Tell whether some call, or the defaults where none is in sight, gives all switches that the two stand under."""
    function = module.scope(first)
    if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return True
    switches = {
        name for node in (first, second) for name in _parameters_that_must_be_true(module, node, function)
    }
    calls = module.functions.callers(function)
    calls = calls or [ast.Call(ast.Name(function.name), [], [])]
    given = [[argument_for(function, each, name) for name in switches] for each in calls]
    return any(all(literal(module, value) is not False for value in each) for each in given)


def _parameters_that_must_be_true(module: SourceModule, node: ast.Assign, function: Function) -> list[str]:
    """Return the parameters that must be true for a statement to be reached."""
    parameters = {each.arg for each in [*function.args.args, *function.args.kwonlyargs]}
    tests = [
        each.test
        for each in module.ancestors(node)
        if isinstance(each, ast.If)
        and module.scope(each) is function
        and _is_inside_body(module, node, each.body)
    ]
    return [each.id for each in tests if isinstance(each, ast.Name) and each.id in parameters]


def _is_inside_body(module: SourceModule, node: ast.AST, body: list[ast.stmt]) -> bool:
    above = {node, *module.ancestors(node)}
    return any(each in above for each in body)
