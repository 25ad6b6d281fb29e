# SPDX-License-Identifier: Apache-2.0
"""A function to evaluate that calls no model, or one that nothing trains, not the learner's: its numbers look like any."""

import functools
import inspect
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from truestep.core.call_site import closure_variables
from truestep.core.text_formatting import a_type
from truestep.core.user_frames import warn_user
from truestep.engine.parts import LearnerParts
from truestep.engine.update_call_errors import CORRECT

_measured: WeakKeyDictionary[nn.Module, tuple[int, list[float]]] = WeakKeyDictionary()
_DEEPEST = 3  # a function that calls a function that calls one


@contextmanager
def warn_if_no_model_called(values: Callable[[Any], Any], learner: LearnerParts) -> Iterator[None]:
    """Warn where no module is called within this, and `values` reads no weights; or none of the learner's."""
    computes = _reaches_module_or_tensor(values)
    if computes and learner.is_compiled:  # torch breaks off where a hook is on all modules
        yield
        return
    called: list[nn.Module] = []
    handle = register_module_forward_pre_hook(lambda module, *_: called.append(module))
    try:
        yield
    finally:
        handle.remove()
    if called:
        _warn_of_other_model(called, learner)
    elif not computes:
        warn_user(
            f"The function given to net.evaluate calls no model, so its numbers say nothing of {learner.name!r}: it is given each "
            f"batch as the data give it, inputs and labels, and no predictions. Have it call the learner: {CORRECT}"
        )


def _warn_of_other_model(called: list[nn.Module], learner: LearnerParts) -> None:
    """Warn of a trainable network that is measured in the learner's place, at a later step again, and has not changed.

    An average of the weights that is kept by hand changes, and a teacher is frozen.
    """
    other, own = called[0], {*learner.module.modules()}
    weights = [each for each in other.parameters() if each.requires_grad]
    if not weights or learner.options.compile or not own.isdisjoint(called):
        return
    sums, step = [float(each.detach().double().sum()) for each in weights], learner.context.step
    before = _measured.setdefault(other, (step, sums))
    if before[0] < step and before[1] == sums:
        warn_user(
            f"The function given to net.evaluate calls {a_type(other)} of its own and no part of {learner.name!r}: it has "
            f"not changed since step {before[0]}, and no learner trains it. Have it call the learner: {CORRECT}"
        )


def _reaches_module_or_tensor(value: Any, depth: int = 0) -> bool:
    """Whether a function reaches a module, a learner or a tensor by its variables, their attributes and what it calls."""
    if isinstance(value, Tensor | nn.Module) or "_parts" in getattr(
        value, "__dict__", {}
    ):  # the latter is a learner
        return True
    if isinstance(value, types.ModuleType | type) or depth > _DEEPEST:
        return depth > _DEEPEST
    if isinstance(value, functools.partial):
        inside = [value.func, *value.args, *value.keywords.values()]
    elif inspect.ismethod(value):
        inside = [value.__self__, value.__func__]
    elif inspect.isfunction(value):
        variables = closure_variables(value)
        inside = [*variables.globals.values(), *variables.nonlocals.values()]
    elif isinstance(value, dict | list | tuple):
        inside = [*(value.values() if isinstance(value, dict) else value)]
    else:
        inside = [*getattr(value, "__dict__", {}).values()]
    return any(_reaches_module_or_tensor(each, depth + 1) for each in inside)
