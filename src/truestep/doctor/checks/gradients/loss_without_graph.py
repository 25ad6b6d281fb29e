# SPDX-License-Identifier: Apache-2.0
"""backward() of a number made anew."""

import ast
from collections.abc import Callable, Iterator
from typing import NamedTuple

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.library.operations import CUTS, SAME_NUMBERS, operations
from truestep.doctor.source.libraries import losses_given_back
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import walk
from truestep.doctor.source.protocol_calls import Protocol
from truestep.doctor.source.value_origins import argument, constant, literal, resolve_expression

_COPIES = operations(numbers="copied")
_KEEPS_GRAPH = ("as_tensor", "asarray")  # of a tensor; of a number they make a new one
# they ask for a gradient unless told otherwise
_LEAVES = ("torch.nn.Parameter", "torch.nn.parameter.Parameter")
_TEXT = "The loss was made anew from a number: it has no graph behind it."


class LossWithoutGraph(SourceCheck):
    """backward() is called on a tensor that was made anew from the loss's number, or a library's step returns one.

    Why: torch.tensor(loss), loss.item() and loss.data have no graph: no weight gets a gradient.

    Bad:
        loss = torch.tensor(F.cross_entropy(net(x), y).item(), requires_grad=True)
        loss.backward()  # here

    Good:
        loss = F.cross_entropy(net(x), y)
        loss.backward()

    Fix: call backward() on the loss itself; in training_step or compute_loss, return it.

    Evidence: the plain form of row 47 of docs/mistakes.md.
    """

    code = "GRAD022"
    words = ("backward", "requires_grad", "Parameter")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report it where all that goes backward, here or in a library, is such a copy."""
        protocol = Protocol(module)
        for call in module.method_calls("backward", "manual_backward"):
            taken = protocol.loss_taken(call)
            loss = protocol.scaled(taken) or taken
            if loss is not None and _is_true_for_all_sources(_is_copy_without_graph, module, loss):
                yield At(call, _TEXT)
        for function in module.named_functions:
            given = losses_given_back(module, function)
            anew = [each for each in given if _is_true_for_all_sources(_is_new_leaf, module, each)]
            yield from (At(each, _TEXT) for each in anew[:1])


class _ValueProvenance(NamedTuple):
    """How a value was made: whether its graph was cut, whether it asks for a gradient of its own, and of what."""

    is_cut: bool
    asks: bool | None
    number: ast.expr


def _is_true_for_all_sources(
    test: Callable[[SourceModule, ast.expr], bool], module: SourceModule, loss: ast.expr
) -> bool:
    """Tell whether all that a loss can be passes a test, be it what a function of the program gives back."""
    values = module.definitions(loss) or [loss]
    made = [each for value in values for each in _values_returned_by_call(module, value)]
    return all(each is not None and test(module, each) for each in made)


def _values_returned_by_call(module: SourceModule, value: ast.expr | None) -> list[ast.expr | None]:
    """Return what a call of the program's own gives back; any other value itself."""
    function = module.functions.target(value) if isinstance(value, ast.Call) else None
    results = module.functions.results(function)
    return [each for result in results for each in module.definitions(result) or [result]] or [value]


def _is_copy_without_graph(module: SourceModule, value: ast.expr) -> bool:
    """Tell what has no graph behind it, although its text says that it is a loss."""
    made = _trace_to_copy(module, value)
    written = [ast.unparse(each) for each in (value, *_number_sources(module, made.number))]
    is_loss = any("loss" in each or "cross_entropy" in each for each in written)
    return is_loss and made.is_cut and made.asks is not False


def _is_new_leaf(module: SourceModule, value: ast.expr) -> bool:
    """Tell what asks for a gradient of its own, and is made of a number that was computed: no 0 for a batch left out."""
    made = _trace_to_copy(module, value)
    names = [each for each in walk(made.number) if isinstance(each, ast.Name)]
    is_computed = bool(names) and literal(module, made.number) is None
    return made.is_cut and made.asks is True and is_computed


def _trace_to_copy(module: SourceModule, value: ast.expr) -> _ValueProvenance:
    """Go back through what leaves the numbers as they are, as far as what copied them."""
    is_cut, asks = False, None
    while (inner := _unwrap_method(value)) is not None:
        name, method = inner[1], value if isinstance(value, ast.Call) else None
        if name == "requires_grad_" and asks is None and method is not None:
            asks = constant(argument(method, 0, "requires_grad")) is not False
        is_cut, value = is_cut or name in CUTS, inner[0]
    number = _source_of_tensor_copy(module, value)
    if number is None or not isinstance(value, ast.Call):
        return _ValueProvenance(is_cut, asks, value)
    written = argument(value, None, "requires_grad")
    if asks is None and written is not None:
        asks = constant(written) is True
    return _ValueProvenance(
        True, True if asks is None and module.qualify(value.func) in _LEAVES else asks, number
    )


def _unwrap_method(value: ast.expr) -> tuple[ast.expr, str] | None:
    """Return x and the method's name of `x.detach()`, `x.to(device)`, `x.data`."""
    method = value.func if isinstance(value, ast.Call) else value
    is_same = isinstance(method, ast.Attribute) and method.attr in SAME_NUMBERS
    if not isinstance(method, ast.Attribute) or not is_same:
        return None
    return (method.value, method.attr) if isinstance(value, ast.Call) or method.attr == "data" else None


def _source_of_tensor_copy(module: SourceModule, value: ast.expr) -> ast.expr | None:
    """Return the number or the tensor that a call makes a tensor without its graph of."""
    if not isinstance(value, ast.Call) or not value.args:
        return None
    given, name = value.args[0], module.qualify(value.func) or ""
    if isinstance(value.func, ast.Attribute) and value.func.attr == "new_tensor":
        return given
    short = name.removeprefix("torch.")
    if name == "torch.autograd.Variable" or short in _KEEPS_GRAPH:
        return given if _is_detached_number(module, given) else None
    return given if name in _LEAVES or (name != short and short in _COPIES) else None


def _is_detached_number(module: SourceModule, given: ast.expr) -> bool:
    """Tell what has lost its graph on the way: `loss.item()`, `float(loss)`, `[loss.item()]`, `loss.data`."""
    parts = [part for each in (given, *_number_sources(module, given)) for part in walk(each)]
    return any(
        (isinstance(each, ast.Attribute) and each.attr in CUTS)
        or (isinstance(each, ast.Name) and each.id == "float")
        for each in parts
    )


def _number_sources(module: SourceModule, number: ast.expr) -> list[ast.expr]:
    """Return what a number comes from: `cross_entropy(...)` of `between.item()`, and that itself."""
    number = resolve_expression(module, number) or number
    method = number.func if isinstance(number, ast.Call) else None
    owner = resolve_expression(module, method.value) if isinstance(method, ast.Attribute) else None
    return [each for each in (number, owner) if each is not None]
