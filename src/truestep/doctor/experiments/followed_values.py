# SPDX-License-Identifier: Apache-2.0
"""Follows what a user's lines compute and give a name that is never read, up to the backward."""

import re
import sys
import weakref
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from truestep.core.call_site import name_never_read, start_of_statement
from truestep.core.frames import frame_of_user
from truestep.doctor.experiments.going_on import unseen
from truestep.doctor.experiments.outcome import ChildOutcome
from truestep.doctor.experiments.step_follower import StepFollower
from truestep.doctor.runtime.operations import watched_operation_name, watched_operation_tensors

# they give the same numbers, or none of what they are given
_HAND_THROUGH = frozenset(
    {"contiguous", "to", "float", "half", "bfloat16", "double", "long", "int", "bool", "type", "type_as", "cpu"}
    | {"cuda", "view", "view_as", "reshape", "permute", "transpose", "t", "squeeze", "unsqueeze", "flatten"}
    | {"expand", "expand_as", "detach", "clone", "requires_grad_", "movedim", "swapaxes", "unflatten"}
    | {"zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like", "new_zeros", "new_ones"}
    | {"new_tensor", "new_full", "new_empty", "T", "mT", "data", "grad", "narrow", "select"}
)  # fmt: skip
_CHOOSE = frozenset({"getitem", "__getitem__", "embedding", "gather", "index_select", "take_along_dim"})
# what is no figure, also where the loop itself computes it beside the loss
_CALLED_MASK = re.compile(r"mask|done|terminal|length", re.IGNORECASE)
_FOR_READERS = frozenset({"softmax", "log_softmax", "sigmoid", "argmax", "max", "topk"})


class _Statement(NamedTuple):
    code: CodeType
    start: int


@dataclass(frozen=True)
class _UnreadValue:
    """A value whose name is never read."""

    told: str  # the name and its line
    code: CodeType
    is_figure: bool  # what readers look at, where it is computed beside the loss
    parameters: tuple[str, ...]  # that it is computed from


class FollowedValues(StepFollower):
    """Within it values are followed until a backward.

    Args:
        parameters: those that are trained, by name.
        spoiled: names, each with its line, whose values are to be others.

    Attributes:
        unread: names that are never read, each with its line, and the parameters that its value is computed from.
    """

    def __init__(self, parameters: Mapping[str, Tensor], spoiled: Collection[str] = ()) -> None:
        super().__init__()
        self.unread: dict[str, list[str]] = {}
        self._names = {id(each): name for name, each in parameters.items()}
        self._spoiled = spoiled
        self._found: list[_UnreadValue] = []
        self._figures: dict[int, weakref.ref[Tensor]] = {}  # computed from what has a graph, without one
        self._statements: dict[int, tuple[weakref.ref[Tensor], _Statement]] = {}  # that computed it

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if self._rests or not isinstance(result, Tensor) or not torch.is_grad_enabled():
            return result
        name, given = watched_operation_name(func), watched_operation_tensors(args, kwargs)
        frame = frame_of_user(sys._getframe(1))
        is_in_place = any(each is result for each in given) and name not in _HAND_THROUGH
        if frame is None or not given or is_in_place:
            return result
        with unseen():
            return self._followed(result, name, given, frame)

    def goes_backward(self, roots: Sequence[Any]) -> None:
        """Note what is not read; beside the loss, where the loop itself computes it, figures are for readers."""
        super().goes_backward(roots)
        found, self._found = self._found, []
        loops = set(_codes_of_stack())
        for each in found:
            if not (each.is_figure and each.code in loops):
                self.unread[each.told] = list(each.parameters)

    def tell(self, seen: ChildOutcome) -> None:
        """Tell of the names that are never read."""
        seen.unread_values = self.unread

    def _followed(self, result: Tensor, name: str, given: Sequence[Tensor], frame: FrameType) -> Tensor:
        numbers = given[:1] if name in _CHOOSE else given  # others say which of them
        if not result.requires_grad and any(each.requires_grad or self._is_figure(each) for each in numbers):
            self._figures[id(result)] = weakref.ref(result)
            return result
        statement = _Statement(frame.f_code, start_of_statement(frame.f_code, frame.f_lasti))
        if name in _HAND_THROUGH and not self._is_computed_in(statement, given[0]):
            return result
        self._statements[id(result)] = (weakref.ref(result), statement)
        unread = name_never_read(frame.f_code, frame.f_lasti)
        if unread is None:
            return result
        told = f"{unread} {frame.f_code.co_filename}:{frame.f_lineno}"
        is_figure = not _CALLED_MASK.search(unread) and (name in _FOR_READERS or not result.requires_grad)
        self._found.append(_UnreadValue(told, frame.f_code, is_figure, tuple(self._leaves(result))))
        return _other_numbers(result) if told in self._spoiled else result

    def _is_figure(self, value: Tensor) -> bool:
        known = self._figures.get(id(value))
        return known is not None and known() is value

    def _is_computed_in(self, statement: _Statement, value: Tensor) -> bool:
        known = self._statements.get(id(value))
        return known is not None and known[0]() is value and known[1] == statement

    def _leaves(self, value: Tensor) -> Iterator[str]:
        """Yield the names of parameters that a value is computed from."""
        waiting, seen = [value.grad_fn], set[Any]()
        while waiting:
            node = waiting.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            if (name := self._names.get(id(getattr(node, "variable", None)))) is not None:
                yield name
            waiting += [each for each, _ in node.next_functions]


def _other_numbers(value: Tensor) -> Tensor:
    if value.dtype is torch.bool:
        return ~value
    return (
        value * float("nan") if value.is_floating_point() or value.is_complex() else torch.zeros_like(value)
    )


def _codes_of_stack() -> Iterator[CodeType]:
    frame = frame_of_user(sys._getframe(1))
    while frame is not None:
        yield frame.f_code
        frame = frame_of_user(frame.f_back)
