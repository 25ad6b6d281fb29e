# SPDX-License-Identifier: Apache-2.0
"""A learner's names beside its module's: which are whose, and what is said where neither has one."""

import difflib
from typing import Any, Protocol

from torch import nn

from truestep.core.frames import warn

_LOOP = "for batch in run.batches(source): net.update(loss, batch)"
_UPDATES = f"An update is one call, backward, clipping, step and schedule included: {_LOOP}."
# Methods that learners or trainers of other libraries have, with what to write here.
ELSEWHERE = {
    **dict.fromkeys(("fit", "train_model", "train_epoch"), f"The loop is yours: {_LOOP}."),
    **dict.fromkeys(("step", "train_step", "training_step", "train_on_batch", "train_batch"), _UPDATES),
    **dict.fromkeys(("backward", "manual_backward", "optimizer", "scheduler", "lr_scheduler"), _UPDATES),
    **dict.fromkeys(("predict", "predict_step"), "Call it: with torch.no_grad(): outputs = net(inputs)."),
    **dict.fromkeys(("validate", "test", "score"), "Measure with net.evaluate(values, data)."),
    **dict.fromkeys(
        ("save", "save_pretrained", "save_checkpoint"),
        'The run saves itself; for a file of the weights write torch.save(net.module.state_dict(), "weights.pt").',
    ),
    **dict.fromkeys(("load", "load_weights"), 'Write ts.load_weights(net.module, "weights.pt").'),
}


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
    if name in ELSEWHERE:
        return f"{message} {ELSEWHERE[name]}"
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
        warn(
            f"{', '.join(hidden[:6])} of {type(module).__name__} and of the learner {learner.name!r} have the same name"
            f"{'s' if len(hidden) > 1 else ''}: net.{hidden[0]} is the learner's. For the module's write net.module.{hidden[0]}.",
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
