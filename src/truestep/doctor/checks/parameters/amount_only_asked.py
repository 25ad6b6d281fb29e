# SPDX-License-Identifier: Apache-2.0
"""A number that switches something on whose own numbers are written out."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import QUESTION, At, SourceCheck
from truestep.doctor.source.arguments import parameter_default
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.value_origins import constant


class AmountOnlyAsked(SourceCheck):
    """A function asks of a number whether it is above 0, and goes on with a number of its own.

    Why: whoever sets it to 0.4 or to 4 gets the same, so a search over it compares noise.

    Bad:
        def mixed(x, alpha=0.0):
            if alpha > 0:
                share = torch.distributions.Beta(1.0, 1.0).sample()  # here
                x = share * x + (1 - share) * x.flip(0)
            return x

    Good:
        def mixed(x, alpha=0.0):
            if alpha > 0:
                share = torch.distributions.Beta(alpha, alpha).sample()
                x = share * x + (1 - share) * x.flip(0)
            return x

    Fix: use the number, or make it True or False.

    Evidence: Kaixhin/imitation-learning 9d428236 training.py:156.
    """

    code = "PARAM048"
    is_preview = True

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report tests of a parameter that nothing else reads, whose block gives a call a fraction that is written out."""
        if "torch" not in module.text:
            return
        for function in module.named_functions:
            for name in _number_parameters(function):
                reads = [each for each in module.inside(function, ast.Name) if each.id == name]
                tests = [_if_testing_above_zero(module, each) for each in reads]
                if not tests or None in tests:
                    continue
                written = next(
                    (call for test in tests if (call := _call_with_literal_fraction(test)) is not None), None
                )
                if written is not None:
                    text = (
                        f"{name!r} is only asked whether it is above 0, and {ast.unparse(written)} has a number of its own: "
                        f"was {name!r} meant?"
                    )
                    yield At(written, text, QUESTION)


def _number_parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """Yield the parameters that a number is the default of, or that are said to be a fraction."""
    arguments = function.args
    for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        default = constant(parameter_default(function, each.arg))
        is_number = isinstance(default, (int, float)) and not isinstance(default, bool)
        if is_number or (isinstance(each.annotation, ast.Name) and each.annotation.id == "float"):
            yield each.arg


def _if_testing_above_zero(module: SourceModule, name: ast.Name) -> ast.If | None:
    """Return the `if name > 0:` that reads a name."""
    above = module.parents[name]
    if not isinstance(above, ast.Compare) or above.left is not name or not isinstance(name.ctx, ast.Load):
        return None
    is_amount = len(above.ops) == 1 and isinstance(above.ops[0], (ast.Gt, ast.NotEq))
    block = module.parents[above]
    is_zero = is_amount and constant(above.comparators[0]) == 0
    return block if is_zero and isinstance(block, ast.If) and block.test is above else None


def _call_with_literal_fraction(test: ast.If | None) -> ast.Call | None:
    """Return the first call in a block that is given a fraction that is written out."""
    for statement in test.body if test is not None else ():
        for call in ast.walk(statement):
            if isinstance(call, ast.Call) and any(
                isinstance(constant(each), float)
                for each in (*call.args, *(one.value for one in call.keywords))
            ):
                return call
    return None
