# SPDX-License-Identifier: Apache-2.0
"""A model that is made ready to predict on one of two ways."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function
from truestep.doctor.source.uses import in_same_block


class EvalOnOneWayOnly(SourceCheck):
    """A function puts the model that it returns into eval mode on one way, and returns it as it is on another.

    Why: which way was taken decides whether dropout drops and batch norm learns while it predicts.

    Bad:
        def load(path):
            try:
                model = build(path)
                return model  # here
            except FileNotFoundError:
                model = build("fallback.pt")
            model.eval()
            return model

    Good:
        def load(path):
            try:
                model = build(path)
                model.eval()
                return model
            except FileNotFoundError:
                model = build("fallback.pt")
            model.eval()
            return model

    Fix: call model.eval() before each of the returns.
    """

    code = "EVAL049"
    words = (".eval()",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report the return of a name on a way without eval(), beside another return of it right behind one."""
        for function in module.functions if module.method_calls("eval") else ():
            returned = [
                (each, each.value.id) for each in module.returns(function) if isinstance(each.value, ast.Name)
            ]
            names = {name for _, name in returned}
            for name in sorted(names):
                ways = [each for each, own in returned if own == name]
                if len(ways) > 1 and not _is_trained(module, function):
                    yield from _without(module, ways, name)


def _without(module: SourceModule, ways: list[ast.Return], name: str) -> Iterator[At]:
    ready = [each for each in ways if _evals_before(module, each, name)]
    for each in ways if ready else ():
        if each not in ready and not _asks_for_mode(module, each):
            text = f"{name!r} is returned in training mode here; the other way calls eval()."
            yield At(each, text, RISK)


def _evals_before(module: SourceModule, node: ast.Return, name: str) -> bool:
    """Tell whether the mode is set before a return on its way: in its block, or in one around."""
    for own in [node, *module.ancestors(node)]:
        if isinstance(own, ast.FunctionDef | ast.AsyncFunctionDef):
            break
        before, _ = in_same_block(module, own)
        if any(_sets_mode(call, name) for each in before for call in module.inside(each, ast.Call)):
            return True
    return False


def _sets_mode(call: ast.Call, name: str) -> bool:
    function = call.func
    if not isinstance(function, ast.Attribute) or function.attr not in ("eval", "train"):
        return False
    return isinstance(function.value, ast.Name) and function.value.id == name


def _is_trained(module: SourceModule, function: Function) -> bool:
    """Tell a function that sets the other mode somewhere, or trains itself."""
    calls = [each.func for each in module.inside(function, ast.Call)]
    methods = [each for each in calls if isinstance(each, ast.Attribute)]
    return any(each.attr in ("train", "backward", "parameters") for each in methods)


def _asks_for_mode(module: SourceModule, node: ast.Return) -> bool:
    """Tell a way that a test for the training opens."""
    tests = [each.test for each in module.ancestors(node) if isinstance(each, ast.If)]
    return any(
        word in ast.unparse(each) for each in tests for word in ("train", "eval", "None", "mode", "infer")
    )
