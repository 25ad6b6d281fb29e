# SPDX-License-Identifier: Apache-2.0
"""Models that a loss uses and no checkpoint has: one that changes, as a target network does, is another after a resume."""

import functools
import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from truestep.core.call_site import closure_variables
from truestep.core.state_trees import tree_leaves
from truestep.run.empty_state_check import EmptyStateDictWatcher
from truestep.run.state import RunState

_NUMBERS_COMPARED = 8  # of each tensor: an average moves all of them, a copy of trained weights nearly all
_DEEPEST = 3  # a loss that calls a function that calls one


class UntrackedModelWatcher:
    """Compares a few numbers of each such model, after 1, 2, 4, ... updates and at the end of each epoch."""

    def __init__(self, run: RunState) -> None:
        self._run = run
        self._first: dict[str, tuple[nn.Module, list[Tensor]]] = {}
        self._owned: set[int] = set()
        self._updates, self._next_look = 0, 1
        self._empty = EmptyStateDictWatcher(run)

    def loop_begins(self) -> None:
        """Note what tracked objects hold that give no state."""
        self._empty.take_note()

    def take_note(self, loss: Callable[..., Any]) -> None:
        """A loss function is called for the first time: note what its models are now."""
        learners = self._run.context.learners.values()
        self._owned |= {id(each) for learner in learners for each in _plain_tensors_of_model(learner.module)}
        for name, model in models_used_by_loss(loss):
            if name not in self._first and (tensors := self._tensors_without_learner(model)):
                self._first[name] = model, _sample_of_values(tensors)

    def _tensors_without_learner(self, model: nn.Module) -> list[Tensor]:
        return [each for each in _plain_tensors_of_model(model) if id(each) not in self._owned]

    def updated(self) -> None:
        """An update was made."""
        self._updates += 1
        if self._updates >= self._next_look:
            self._next_look *= 2
            self.look()

    def look(self) -> None:
        """Name what has changed and is in no checkpoint, once."""
        self._empty.look()
        for name, (model, before) in [*self._first.items()]:
            tensors = self._tensors_without_learner(model)
            now = _sample_of_values(tensors)
            if (changed := _have_changed(before, now)) is False:
                continue
            del self._first[name]
            if changed and not self._has_tracked_numbers(tensors):
                self._run.screen.say_once(
                    _UNKEPT.format(name=name, short=name.rpartition(".")[2]), key=f"unkept {name}"
                )

    def _has_tracked_numbers(self, tensors: list[Tensor]) -> bool:
        """Whether the numbers of a model are in what run.track or run.state keeps; of run.state a copy may be of earlier ones."""
        states = [each.state_dict() for each in self._run.tracked.objects() if hasattr(each, "state_dict")]
        tracked, stated = (
            [leaf for _, leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]
            for tree in (states, dict(self._run.user))
        )
        tensor = max(tensors, key=Tensor.numel)
        return any(each.shape == tensor.shape for each in stated) or any(
            each.shape == tensor.shape and torch.equal(each.to(tensor.device), tensor) for each in tracked
        )


def models_used_by_loss(loss: Any, depth: int = 0) -> Iterator[tuple[str, nn.Module]]:
    """Yield the modules that a loss function reaches by variables, attributes and functions of its own file, by what one writes."""
    if isinstance(loss, functools.partial):
        for part in (loss.func, *loss.args, *loss.keywords.values()):
            yield from models_used_by_loss(part, depth)
    elif isinstance(loss, nn.Module):
        yield type(loss).__name__.lower(), loss
    elif inspect.ismethod(loss):
        yield from _models_in_variable("self", loss.__self__)
        yield from models_used_by_loss(loss.__func__, depth)
    elif inspect.isfunction(loss) and depth < _DEEPEST:
        variables = closure_variables(loss)
        for name, value in {**variables.globals, **variables.nonlocals}.items():
            if not inspect.isfunction(value):
                yield from _models_in_variable(name, value)
            elif value.__globals__ is loss.__globals__:
                yield from models_used_by_loss(value, depth + 1)


def _models_in_variable(name: str, value: Any) -> Iterator[tuple[str, nn.Module]]:
    """Yield a variable's value where it is a module, and the modules among an object's attributes."""
    if isinstance(value, nn.Module):
        yield name, value
    elif not isinstance(value, type | types.ModuleType):
        members = getattr(value, "__dict__", None)
        members = members if isinstance(members, dict) else {}
        yield from ((f"{name}.{key}", each) for key, each in members.items() if isinstance(each, nn.Module))


def _plain_tensors_of_model(model: nn.Module) -> list[Tensor]:
    """Return the parameters and buffers that have numbers which can be taken out one by one."""
    return [each for each in (*model.parameters(), *model.buffers()) if is_plain_tensor(each)]


def is_plain_tensor(tensor: Tensor) -> bool:
    """Whether its numbers can be taken out one by one: of no class of its own, dense, and with memory."""
    is_torchs = type(tensor) in (Tensor, nn.Parameter)
    return is_torchs and tensor.layout is torch.strided and not tensor.is_meta


def _sample_of_values(tensors: list[Tensor]) -> list[Tensor]:
    parts = (each.detach().flatten() for each in tensors)
    return [each[:: max(1, len(each) // _NUMBERS_COMPARED)].clone() for each in parts]


def _have_changed(before: list[Tensor], now: list[Tensor]) -> bool | None:
    """Tell whether numbers are others; None where they can't be compared: some are a learner's by now, or of another type."""
    if [(each.shape, each.dtype) for each in before] != [(each.shape, each.dtype) for each in now]:
        return None
    return not all(torch.equal(one, other.to(one.device)) for one, other in zip(before, now, strict=True))


_UNKEPT = (
    "{name}, which a loss uses, has changed since this start began, and no checkpoint has it: it is no learner's, and neither "
    "run.track nor run.state keeps it. A run that goes on would begin with another one and end elsewhere. Write "
    "run.track({short}={name}) before the loop"
)
