# SPDX-License-Identifier: Apache-2.0
"""A learner given to what takes a module or parameters: torch, transformers, Lightning and Accelerate ask first what it is."""

from types import FrameType

from truestep.core.call_site import unpacks_call_result
from truestep.core.errors import OptionError
from truestep.core.guidance import guidance, guidance_by_name

_PLACE = "a learner given to"  # of its rows each names a module that trains, wraps or writes out what it asks after
_THROUGH = ("torch.nn.modules.module", "torch.nn.parameter", "abc")  # ask in somebody's stead


def refuse_use_as_module(name: str, asking: FrameType | None) -> None:
    """Raise an OptionError where the code that asks for a learner's class would take it for a module, or for parameters."""
    home = ""
    while asking is not None and (home := str(asking.f_globals.get("__name__", ""))) in _THROUGH:
        asking = asking.f_back
    for each in guidance_by_name(_PLACE):
        if home.startswith(each):
            raise OptionError(guidance(_PLACE, each, name=name, home=each) or each)


def refuse_unpacking(name: str, number: int, asking: FrameType) -> None:
    """Raise an OptionError where `a, b = run.learner(...)` asks a new learner for its first part."""
    if number == 0 and unpacks_call_result(asking):
        raise OptionError(
            f"run.learner returns one learner, here {name!r}, and it was taken apart into several names: it holds its modules and "
            "their optimizer, and updates them together. Write one name, net = run.learner(module, optimizer); two networks "
            "that are trained apart are two learners, G = run.learner(G, optimizer) and D = run.learner(D, optimizer)"
        )
