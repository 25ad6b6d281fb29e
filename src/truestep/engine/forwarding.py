# SPDX-License-Identifier: Apache-2.0
"""A learner's names beside its module's: which are whose, and what is said where neither has one."""

import difflib
import warnings
from typing import Any, Protocol

from torch import nn


class Forwarding(Protocol):
    """What is looked at of a learner."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def module(self) -> nn.Module: ...  # noqa: D102


def unknown_attribute(learner: Forwarding, name: str) -> str:
    """Return the message for an attribute that neither the learner nor its module has, with the nearest that one has."""
    module = learner.module
    message = f"Neither the learner {learner.name!r} nor its module ({type(module).__name__}) has the attribute {name!r}."
    names = [each for each in {*dir(learner), *dir(module)} if not each.startswith("_")]
    close = difflib.get_close_matches(name, sorted(names), n=3, cutoff=0.6)
    return message + (f" Did you mean {' or '.join(repr(each) for each in close)}?" if close else "")


def set_on_module(learner: Forwarding, name: str, value: Any) -> None:
    """Set an attribute of the learner's module; an AttributeError says so where it has none of this name."""
    if hasattr(type(learner), name):
        instead = " Set it in the optimizer: " if name == "learning_rate" else ""
        group = (
            f'for group in {learner.name}.optimizers[0].param_groups: group["lr"] = {value!r}'
            if instead
            else ""
        )
        raise AttributeError(
            f"{name!r} of the learner {learner.name!r} can be read, not set.{instead}{group}"
        )
    if not hasattr(learner.module, name):
        raise AttributeError(
            f"{unknown_attribute(learner, name)} A name that nobody reads would be set without effect; to add one to the module "
            f"write net.module.{name} = ..."
        )
    setattr(learner.module, name, value)


def warn_of_hidden(learner: Forwarding) -> None:
    """Warn of attributes of the module that the learner's own names hide: reading or setting them reaches the learner."""
    module = learner.module
    hidden = sorted(
        name for name in _names_given_to(module) if not name.startswith("_") and hasattr(type(learner), name)
    )
    if hidden:
        warnings.warn(
            f"{', '.join(hidden[:6])} of {type(module).__name__} and of the learner {learner.name!r} have the same name"
            f"{'s' if len(hidden) > 1 else ''}: net.{hidden[0]} is the learner's. For the module's write net.module.{hidden[0]}.",
            stacklevel=5,
        )


def _names_given_to(module: nn.Module) -> set[str]:
    """Return the names that the module's author chose: not those that torch gives to every module."""
    given = {*vars(module), *module._parameters, *module._buffers}
    if not isinstance(module, nn.ModuleDict | nn.ModuleList):  # whose members are found by their key
        given |= set(module._modules)
    classes = [
        kind for kind in type(module).__mro__ if not kind.__module__.startswith(("torch.", "builtins"))
    ]
    given.update(name for kind in classes for name in vars(kind))
    return given - vars(nn.Module()).keys()
