# SPDX-License-Identifier: Apache-2.0
"""A function to evaluate that calls no model: it takes what the data give for predictions, and its numbers look like any."""

import functools
import inspect
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from truestep.core.call_site import closure_variables
from truestep.core.frames import warn_user
from truestep.engine.wrong_calls import CORRECT

_DEEPEST = 3  # a function that calls a function that calls one


@contextmanager
def telling_of_no_model(values: Callable[[Any], Any], name: str) -> Iterator[None]:
    """Warn where no module is called within this, and the function `values` reads nothing that computes with weights."""
    if _computes(values):
        yield
        return
    called: list[bool] = []
    handle = register_module_forward_pre_hook(lambda *_: called.append(True))
    try:
        yield
    finally:
        handle.remove()
    if not called:
        warn_user(
            f"The function given to net.evaluate calls no model, so its numbers say nothing of {name!r}: it is given each batch as "
            f"the data give it, inputs and labels, and no predictions. Have it call the learner: {CORRECT}"
        )


def _computes(value: Any, depth: int = 0) -> bool:
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
    return any(_computes(each, depth + 1) for each in inside)
