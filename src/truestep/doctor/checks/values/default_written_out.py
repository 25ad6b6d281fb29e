# SPDX-License-Identifier: Apache-2.0
"""A parameter that one of two calls ignores."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function


class DefaultWrittenOut(SourceCheck):
    """A function hands its parameter on in one place, and its default, written as a constant, in another of the same kind.

    Why: with the default both agree; with any other value one half of the computation goes over other axes than the other.

    Bad:
        def normalised(images, axes=(1, 2, 3)):
            centred = images - images.mean(dim=(1, 2, 3), keepdim=True)  # here
            return centred / images.std(dim=axes, keepdim=True)

    Good:
        def normalised(images, axes=(1, 2, 3)):
            centred = images - images.mean(dim=axes, keepdim=True)
            return centred / images.std(dim=axes, keepdim=True)

    Fix: the parameter in both places.
    """

    code = "VALUE064"
    words = ("dim", "axis", "size", "shape")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a keyword whose constant is a parameter's default of several numbers, beside one that has the parameter."""
        for function in module.functions:
            defaults = dict(_defaults_of(function))
            for call in module.directly_in(function, ast.Call) if defaults else ():
                for word in call.keywords:
                    name = (
                        defaults.get(ast.unparse(word.value)) if isinstance(word.value, ast.Tuple) else None
                    )
                    if name is not None and _is_given_elsewhere(module, function, call, word.arg, name):
                        yield At(
                            call,
                            f"{word.arg} is written out here, and {name!r} beside it: they agree by default alone.",
                        )


def _defaults_of(function: Function) -> Iterator[tuple[str, str]]:
    """Yield (text, name) of the parameters that have several numbers for their default."""
    ordered = [*function.args.posonlyargs, *function.args.args]
    for each, given in zip(reversed(ordered), reversed(function.args.defaults), strict=False):
        if isinstance(given, ast.Tuple) and len(given.elts) > 1:
            yield ast.unparse(given), each.arg


def _is_given_elsewhere(
    module: SourceModule, function: Function, call: ast.Call, word: str | None, name: str
) -> bool:
    """Tell whether another call of the function takes the parameter under the same keyword, of the same data."""
    for other in module.directly_in(function, ast.Call):
        if other is call or _subject(other) != _subject(call):
            continue
        if any(
            each.arg == word and isinstance(each.value, ast.Name) and each.value.id == name
            for each in other.keywords
        ):
            return True
    return False


def _subject(call: ast.Call) -> str:
    """Return what a reduction is taken of: `x` of `x.mean(dim=1)` and of `torch.mean(x, dim=1)`."""
    if call.args:
        return ast.unparse(call.args[0])
    return ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""
