# SPDX-License-Identifier: Apache-2.0
"""Where a loss without a gradient lost it: the calls on its way through which none goes."""

from collections.abc import Iterator, Sequence
from functools import partial
from inspect import isfunction, ismethod
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any

from torch import nn

from truestep.core.call_site import attributes_read, closure_variables
from truestep.core.frames import is_library_file

if TYPE_CHECKING:
    from truestep.engine.parts import LearnerParts

_CUTS = {
    "argmax": "F.cross_entropy takes the outputs themselves",
    "detach": "leave it out, or give it what is no output of the learner",
    "data": "leave it out",
    "item": "return the tensor",
    "tolist": "return the tensor",
    "numpy": "compute with torch",
    "tensor": "torch.stack keeps the graph of several losses",
    "as_tensor": "torch.stack keeps the graph of several losses",
    "no_grad": "leave it out",
    "inference_mode": "leave it out",
    "round": "compute with the value before it",
    "long": "compute with the value before it",
}
_DEEPEST = 3  # a loss that calls a function that calls one
_SHOWN = 3


def note_cut(error: Exception, loss: Any, learners: "Sequence[LearnerParts]") -> None:
    """Note beside an error about a loss without a gradient which calls of it, and of its models, let none through."""
    if not str(error).startswith("The loss has no gradient"):
        return
    codes = [*codes_of_loss(loss), *(code for each in learners for code in codes_of_loss(each.module))]
    found = dict.fromkeys(cut for code in codes for cut in _cuts_in(code))
    if found:
        shown = "; ".join(f"{name} ({place}): {_CUTS[name]}" for name, place in [*found][:_SHOWN])
        error.add_note(f"truestep: no gradient goes through {shown}.")


def codes_of_loss(function: Any, depth: int = 0) -> Iterator[CodeType]:
    """Yield the code of a function, of those that it reads, and of the forwards of a model of the user's."""
    if type(function) is partial:
        for each in (function.func, *function.args):
            yield from codes_of_loss(each, depth)
        return
    if type(function).__module__.startswith("truestep.") or type(function) is type:
        return  # a learner answers no question of what it is
    if isinstance(function, nn.Module):
        forwards = {type(each).forward for each in function.modules()}
        yield from (each.__code__ for each in forwards if isfunction(each) and _is_users(each.__code__))
        return
    function = function.__func__ if ismethod(function) else function
    function = function if isfunction(function) else vars(type(function)).get("__call__")
    if not isfunction(function) or depth >= _DEEPEST or not _is_users(function.__code__):
        return
    yield function.__code__
    if (wrapped := getattr(function, "__wrapped__", None)) is not None:
        yield from codes_of_loss(wrapped, depth + 1)
    variables = closure_variables(function)
    for value in {**variables.globals, **variables.nonlocals}.values():
        yield from codes_of_loss(value, depth + 1)


def _is_users(code: CodeType) -> bool:
    return not is_library_file(code.co_filename)


def _cuts_in(code: CodeType) -> Iterator[tuple[str, str]]:
    for name, line in attributes_read(code):
        if name in _CUTS:
            yield name, f"{Path(code.co_filename).name}:{line}"
