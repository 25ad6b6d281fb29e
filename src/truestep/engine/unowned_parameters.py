# SPDX-License-Identifier: Apache-2.0
"""Parameters that a loss depends on and that no learner owns: nobody steps them."""

import inspect
from collections.abc import Callable, Collection, Iterator
from typing import Any

from torch import Tensor, nn

from truestep.core.call_site import closure_variables
from truestep.core.errors import LossError
from truestep.core.user_frames import warn_user
from truestep.engine.parts import LearnerParts


class UnownedParameters:
    """Looks at the graph of each loss function when it is first used; later updates cost one look into a set."""

    def __init__(self, learners: str, owned: Collection[int]) -> None:
        self._learners = learners
        self._owned = owned  # the ids of all learners' parameters
        self._seen: set[Any] = set()
        self._newest: Any = None

    def look(self, loss: Callable[..., Any] | None, values: Tensor) -> bool:
        """Warn of the parameters under `values` that no learner owns, once for each loss function (None: no function).

        Return whether it was looked at for the first time.
        """
        try:
            # by its code: a lambda that is made anew for each batch is the same loss
            key: Any = loss.__code__  # type: ignore[union-attr]
        except AttributeError:
            key = loss.__class__
        if key is self._newest or key in self._seen:  # hashing code takes longer than all else here
            return False
        self._newest = key
        self._seen.add(key)
        reached = _graph_parameters(values)
        found = [p for p in reached if id(p) not in self._owned]
        if found and (name := _foreign_learner_name(found, loss)):
            text = _OF_ANOTHER_RUN.format(learners=self._learners, name=name)
            if len(found) == len(reached):
                raise LossError(text)
            warn_user(text)
        elif found:
            names = ", ".join(_parameter_name_in_loss(parameter, loss) for parameter in found[:4])
            warn_user(
                f"The loss of {self._learners} depends on {len(found)} trainable parameters that no learner owns ({names}): no "
                "optimizer steps them, so they never change. Give what holds them to a learner, run.learner([model, criterion], "
                "...), or, if they are to stay as they are, call requires_grad_(False) on them."
            )
        return True


def _foreign_learner_name(found: list[nn.Parameter], loss: Callable[..., Any] | None) -> str:
    """Return the name under which a loss holds a learner whose parameters these are; they are of no learner of this run."""
    for name, value in _loss_variables(loss):
        parts = getattr(value, "__dict__", {}).get("_parts")
        own = {id(each) for each in parts.module.parameters()} if isinstance(parts, LearnerParts) else set()
        if any(id(each) in own for each in found):
            return name
    return ""


_OF_ANOTHER_RUN = (
    "The loss of {learners} calls {name}, and the learner that it holds under this name is one of another run: a function keeps "
    "the learner that was there when it was made. Make the function again, behind {name} = run.learner(...) of this run (in a "
    "notebook, run the cell that defines it once more), or give it the learner by an argument."
)


def _graph_parameters(values: Tensor) -> list[nn.Parameter]:
    """Return the parameters at the leaves of the graph of `values`."""
    if values.grad_fn is None:
        return [values] if isinstance(values, nn.Parameter) else []
    leaves = [node.variable for node in graph_nodes(values) if type(node).__name__ == "AccumulateGrad"]
    return [leaf for leaf in leaves if isinstance(leaf, nn.Parameter)]


def graph_nodes(values: Tensor) -> set[Any]:
    """Return the operations of the graph of `values`, and its leaves."""
    waiting: list[Any] = [values.grad_fn] if values.grad_fn is not None else []
    seen = set(waiting)
    while waiting:
        fresh = {before for before, _ in waiting.pop().next_functions if before is not None} - seen
        seen |= fresh
        waiting += fresh
    return seen


def _parameter_name_in_loss(parameter: nn.Parameter, loss: Callable[..., Any] | None) -> str:
    """Return what the loss function calls `parameter`, or its shape where it gets hold of it in another way."""
    for name, value in _loss_variables(loss):
        if value is parameter:
            return name
        for inner, member in value.named_parameters() if isinstance(value, nn.Module) else ():
            if member is parameter:
                return f"{name}.{inner}"
    return f"one of shape {tuple(parameter.shape)}"


def _loss_variables(loss: Callable[..., Any] | None) -> Iterator[tuple[str, Any]]:
    if inspect.ismethod(loss):
        owner = loss.__self__
        members = owner.named_children() if isinstance(owner, nn.Module) else vars(owner).items()
        yield from members
        loss = loss.__func__
    if inspect.isfunction(loss):
        variables = closure_variables(loss)
        yield from {**variables.globals, **variables.nonlocals}.items()
