# SPDX-License-Identifier: Apache-2.0
"""A term of a loss that is made of argmax."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.library.operations import CUTS, MAKERS, operations
from truestep.doctor.source.flow import goes_backward
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function, walk
from truestep.doctor.source.values import constant

_CHOICES = operations(numbers="index stepped") | {"topk_indices"}
_CUTS = CUTS | {"one_hot", "topk_indices"}
_MAKES = MAKERS
_NUMBERS = ("shape", "ndim", "smooth", "eps", "epsilon")  # attributes that no gradient comes from
_CHOICE, _GRADIENT = "choice", "gradient"


class TermOfChoices(SourceCheck):
    """A loss, or a term of one, is computed from the classes that argmax() chose, and from nothing with a gradient.

    Why: argmax has no gradient: the number moves as the model does, and trains no weight.

    Bad:
        def dice(logits, target):
            chosen = F.one_hot(logits.argmax(1), 3).float()  # here
            wanted = F.one_hot(target, 3).float()
            return 1 - 2 * (chosen * wanted).sum() / (chosen.sum() + wanted.sum())

        logits = net(x)
        (F.cross_entropy(logits, y) + dice(logits, y)).backward()

    Good:
        def dice(logits, target):
            chosen = logits.softmax(1)
            wanted = F.one_hot(target, 3).float()
            return 1 - 2 * (chosen * wanted).sum() / (chosen.sum() + wanted.sum())

        logits = net(x)
        (F.cross_entropy(logits, y) + dice(logits, y)).backward()

    Fix: use the probabilities, softmax(logits), instead of the choice.
    """

    code = "GRAD058"
    words = ("argmax", "round", "sign", "argmin")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report the choice behind a function's result that goes backward, where all ways to it end in such."""
        for function in module.functions:
            if not any(each.attr in _CHOICES for each in module.inside(function, ast.Attribute)):
                continue
            for value in module.resolver.results(function):
                computed = any(isinstance(each, ast.BinOp) for each in walk(value))  # else it may be an index
                ends = list(_ends_of(module, value, function)) if computed else []
                choices = [each for kind, each in ends if kind == _CHOICE]
                if choices and len(choices) == len(ends) and goes_backward(module, value):
                    yield At(
                        choices[0],
                        "This term is made of choices, which have no gradient: it trains nothing.",
                        RISK,
                    )


def _ends_of(module: SourceModule, value: ast.expr, scope: Function) -> Iterator[tuple[str, ast.expr]]:
    """Yield where a value comes from, as far as it could have a gradient, and the choices in which that ends.

    Of what has no gradient, since it is made of integers, only the choices are told: a choice among those is one still.
    """
    seen: set[tuple[ast.expr, bool]] = set()
    waiting = [(value, True)]
    while waiting:
        node, has_gradient = waiting.pop()
        if (node, has_gradient) in seen:
            continue
        seen.add((node, has_gradient))
        method = _method(module, node) if isinstance(node, ast.Call) else ""
        if method in _CHOICES:
            yield _CHOICE, node
            continue
        parts = _parts(module, node, scope)
        if parts is None and has_gradient:
            yield _GRADIENT, node
        waiting += [(each, has_gradient and method not in _CUTS) for each in parts or []]


def _method(module: SourceModule, call: ast.Call) -> str:
    """Return the operation of torch, or the method of a tensor, that is called."""
    name = module.qualify(call.func) or ""
    if name:
        return name.rsplit(".", 1)[-1] if name.startswith("torch.") else name
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def _parts(module: SourceModule, node: ast.expr, scope: Function) -> list[ast.expr] | None:
    """Return what a value is computed from, one step back; None where that can't be seen."""
    match node:
        case ast.Call():
            return _parts_of_call(module, node)
        case ast.Constant() | ast.Compare():
            return []
        case ast.BinOp(left=left, right=right):
            return [left, right]
        case ast.UnaryOp(operand=inner) | ast.Subscript(value=inner) | ast.Starred(value=inner):
            return [inner]
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return parts
        case ast.Name():
            made = module.resolver.reaching(node)
            known = [each.value for each in made if each.how in ("assign", "augmented")]
            here = [each for each in known if each is not None and module.scope(each) is scope]
            return here if here and len(here) == len(made) else None
        case ast.Attribute():
            values = module.definitions(node)
            is_number = bool(values) and all(isinstance(constant(each), int | float) for each in values)
            return [] if is_number or node.attr in _NUMBERS else None
    return None


def _parts_of_call(module: SourceModule, call: ast.Call) -> list[ast.expr] | None:
    name, method = module.qualify(call.func) or "", _method(module, call)
    if name in ("len", "float", "int") or (name.startswith("torch.") and method in _MAKES):
        return []
    given = [*call.args, *(word.value for word in call.keywords)]
    if not name and isinstance(call.func, ast.Attribute):
        return [call.func.value, *given]
    return given if name.startswith("torch.") or method in _CUTS else None
