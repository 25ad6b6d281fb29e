# SPDX-License-Identifier: Apache-2.0
"""`def f(x, axis=1): x.mean(dim=1) ... x.std(dim=axis)`."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function
from truestep.doctor.source.questions import mentions_torch

_AXES = ("dim", "axis", "dims", "axes")


class DefaultWrittenAgain(SourceCheck):
    """Of two calls on the same value one is given the function's option, and the other the option's default as a constant.

    Why: with any other value of the option the two do not fit: it is used in one of two places.

    Bad:
        def standardised(x, axis=1):
            return (x - x.mean(dim=1, keepdim=True)) / x.std(dim=axis, keepdim=True)  # here

        loss = net(standardised(x)).sum()

    Good:
        def standardised(x, axis=1):
            return (x - x.mean(dim=axis, keepdim=True)) / x.std(dim=axis, keepdim=True)

        loss = net(standardised(x)).sum()

    Fix: give the option in both places.
    """

    code = "VALUE037"

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report the call that is given the constant."""
        if not module.of_program(mentions_torch):
            return
        for function in module.functions:
            options = _options(function)
            calls = module.inside(function, ast.Call) if options else []
            given = [(call, word) for call in calls for word in call.keywords if word.arg is not None]
            for name, default in options.items():
                using = {
                    (word.arg, _subject(call))
                    for call, word in given
                    if isinstance(word.value, ast.Name) and word.value.id == name
                }
                for call, word in given if using else ():
                    if (
                        word.arg in _AXES
                        and (word.arg, _subject(call)) in using
                        and ast.dump(word.value) == default
                    ):
                        text = f"{word.arg}={ast.unparse(word.value)} is the default of {name!r}, which is given beside it."
                        yield At(call, text, RISK)


def _options(function: Function) -> dict[str, str]:
    """Return the parameters with a number, or several, as the default."""
    names = [each.arg for each in function.args.args]
    found = dict(zip(reversed(names), reversed(function.args.defaults), strict=False))
    words = zip([each.arg for each in function.args.kwonlyargs], function.args.kw_defaults, strict=True)
    found |= {name: value for name, value in words if value is not None}
    return {name: ast.dump(value) for name, value in found.items() if _is_number(value)}


def _is_number(value: ast.expr) -> bool:
    if isinstance(value, ast.Tuple | ast.List):
        return bool(value.elts) and all(_is_number(each) for each in value.elts)
    inner = value.operand if isinstance(value, ast.UnaryOp) else value
    return isinstance(inner, ast.Constant) and type(inner.value) in (int, float)


def _subject(call: ast.Call) -> str:
    """Return the value that a call is about: its first argument, or the object of the method."""
    if call.args:
        return ast.dump(call.args[0])
    return ast.dump(call.func.value) if isinstance(call.func, ast.Attribute) else ""
