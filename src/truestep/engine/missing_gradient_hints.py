# SPDX-License-Identifier: Apache-2.0
"""What the code of a loss says of an error: the calls through which no gradient goes, and whose loss it may be."""

from collections.abc import Iterator, Sequence
from functools import partial
from inspect import isfunction, ismethod
from pathlib import Path
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from torch import nn

from truestep.core.call_site import attributes_read, closure_variables
from truestep.core.errors import LossError
from truestep.core.user_frames import is_library_file

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


def note_detaching_calls(error: Exception, loss: Any, learners: "Sequence[LearnerParts]") -> None:
    """Note beside an error about a loss without a gradient which calls let none through, and which other learner it reads."""
    if not str(error).startswith("The loss has no gradient"):
        return
    codes = [*codes_of_loss(loss), *(code for each in learners for code in codes_of_loss(each.module))]
    found = dict.fromkeys(cut for code in codes for cut in _detaching_calls_in(code))
    own = " and ".join(each.name for each in learners)
    if others := _other_learners(loss, learners):
        # of two losses that were exchanged the calls are right, and the learner is not
        places = "; ".join(f"{name} ({place})" for name, place in [*found][:_SHOWN])
        cut = (
            f"no gradient for {own} goes through {places}: if the loss is {own}'s, leave it out. "
            if found
            else ""
        )
        error.add_note(
            f"truestep: {cut}The loss reads {' and '.join(others)}, too: if it is meant to train {others[0]}, write "
            f"{others[0]}.update(loss, batch); what no loss trains needs no update, and no learner."
        )
    elif found:
        shown = "; ".join(f"{name} ({place}): {_CUTS[name]}" for name, place in [*found][:_SHOWN])
        error.add_note(f"truestep: no gradient goes through {shown}.")


def averaged_in_loss_error(error: BaseException, loss: Any) -> LossError | None:
    """Return a clear error if a loss has put a learner's average in the place of weights that its gradient needs."""
    if "modified by an inplace operation" not in str(error):
        return None
    reads = (attribute for code in codes_of_loss(loss) for attribute in attributes_read(code))
    line = next((line for name, line in reads if name == "averaged"), None)
    return LossError(_AVERAGED_IN_LOSS.format(line=line)) if line else None


_AVERAGED_IN_LOSS = (
    "The loss enters net.averaged() (line {line}) behind a call of net(...), and the average takes the place of the weights that "
    "this call's gradient needs. Compute with the average first: with torch.no_grad(), net.averaged(): targets = net(x), and "
    "behind that block what is trained; or outside of the loss, and pass it along: net.update(loss, (x, targets))."
)


def _other_learners(loss: Any, learners: "Sequence[LearnerParts]") -> list[str]:
    """Return the names under which the loss reads learners that this update does not train."""
    own = {id(each) for each in learners}
    variables = [pair for each in _user_functions_of(loss) for pair in _function_variables(each).items()]
    parts = [
        (name, getattr(value, "_parts", None)) for name, value in variables if _is_truestep_object(value)
    ]
    return list(dict.fromkeys(name for name, each in parts if each is not None and id(each) not in own))


def codes_of_loss(function: Any) -> Iterator[CodeType]:
    """Yield the code of a function, of those that it reads, and of the forwards of a model of the user's."""
    return (each.__code__ for each in _user_functions_of(function))


def _user_functions_of(function: Any, depth: int = 0) -> Iterator[FunctionType]:
    """Yield a function of the user's and those that it reads, within partials and decorators too, and forwards of models."""
    if type(function) is partial:
        for each in (function.func, *function.args):
            yield from _user_functions_of(each, depth)
        return
    if _is_truestep_object(function) or type(function) is type:
        return  # a learner answers no question of what it is
    if isinstance(function, nn.Module):
        forwards = {type(each).forward for each in function.modules()}
        yield from (each for each in forwards if isfunction(each) and _is_user_code(each.__code__))
        return
    function = function.__func__ if ismethod(function) else function
    function = function if isfunction(function) else vars(type(function)).get("__call__")
    if not isfunction(function) or depth >= _DEEPEST or not _is_user_code(function.__code__):
        return
    yield function
    if (wrapped := getattr(function, "__wrapped__", None)) is not None:
        yield from _user_functions_of(wrapped, depth + 1)
    for value in _function_variables(function).values():
        yield from _user_functions_of(value, depth + 1)


def _function_variables(function: FunctionType) -> dict[str, Any]:
    variables = closure_variables(function)
    return {**variables.globals, **variables.nonlocals}


def _is_truestep_object(value: Any) -> bool:
    return type(value).__module__.startswith("truestep.")


def _is_user_code(code: CodeType) -> bool:
    return not is_library_file(code.co_filename)


def _detaching_calls_in(code: CodeType) -> Iterator[tuple[str, str]]:
    for name, line in attributes_read(code):
        if name in _CUTS:
            yield name, f"{Path(code.co_filename).name}:{line}"
