# SPDX-License-Identifier: Apache-2.0
"""Follows what a user's lines compute and give a name that is never read, up to the backward."""

import hashlib
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from truestep.core.call_site import is_in_tuple_assignment, start_of_statement, unread_result_name
from truestep.core.user_frames import innermost_user_frame
from truestep.doctor.experiments.follower_base import StepFollower, TensorNotes, frame_line_text, users_frame
from truestep.doctor.experiments.in_process_child import unseen
from truestep.doctor.experiments.outcome import ChildOutcome
from truestep.doctor.relations.graph import walk_graph_nodes
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
_MOST_NUMBERS = 1 << 20  # of which a digest is taken
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
    unpacked: str | None  # of data that is named beside other data: what tells its numbers


class ValueFollower(StepFollower):
    """Within it values are followed until a backward.

    Args:
        parameters: those that are trained, by name.
        spoiled: names, each with its line, whose values are to be others.

    It finds:
        unread: names that are never read, each with its line, and the parameters that its value is computed from.
    """

    def __init__(self, parameters: Mapping[str, Tensor], spoiled: Collection[str] = ()) -> None:
        super().__init__(unread={})
        self._names = {id(each): name for name, each in parameters.items()}
        self._spoiled = spoiled
        self._found: list[_UnreadValue] = []
        self._figures = TensorNotes[bool]()  # computed from what has a graph, without one
        self._statements = TensorNotes[_Statement]()  # that computed it
        self._read = set[str]()  # what tells the numbers of data that is read
        self._unpacked: dict[str, str] = {}  # the same of what is unread, by its name and line

    def followed(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Note what no line reads; give other numbers where that is asked."""
        result = func(*args, **kwargs)
        if not isinstance(result, Tensor) or not torch.is_grad_enabled():
            return result
        name, given = watched_operation_name(func), watched_operation_tensors(args, dict(kwargs))
        frame = users_frame()
        is_in_place = any(each is result for each in given) and name not in _HAND_THROUGH
        if frame is None or not given or is_in_place:
            return result
        with unseen():
            return self._note_computed_value(result, name, given, frame)

    def goes_backward(self, roots: Sequence[Any]) -> None:
        """Note what is not read; beside the loss, where the loop itself computes it, figures are for readers."""
        super().goes_backward(roots)
        found, self._found = self._found, []
        loops = set(_user_stack_codes())
        for each in found:
            if not (each.is_figure and each.code in loops):
                self.found["unread"][each.told] = list(each.parameters)
                if each.unpacked is not None:
                    self._unpacked[each.told] = each.unpacked

    def tell(self, seen: ChildOutcome) -> None:
        """Tell of what is unread, but of data that is unpacked once more, as `x, y = ...` is where x alone is wanted."""
        again = {told for told, numbers in self._unpacked.items() if numbers in self._read}
        self.found["unread"] = {
            told: each for told, each in self.found["unread"].items() if told not in again
        }
        super().tell(seen)

    def _note_computed_value(
        self, result: Tensor, name: str, given: Sequence[Tensor], frame: FrameType
    ) -> Tensor:
        numbers = given[:1] if name in _CHOOSE else given  # others say which of them
        if not result.requires_grad and any(
            each.requires_grad or self._figures.get(each) for each in numbers
        ):
            self._figures[result] = True
            return result
        statement = _Statement(frame.f_code, start_of_statement(frame.f_code, frame.f_lasti))
        if name in _HAND_THROUGH and self._statements.get(given[0]) != statement:
            return result
        self._statements[result] = statement
        unread = unread_result_name(frame.f_code, frame.f_lasti)
        numbers_told = None if result.requires_grad else _data_fingerprint(name, result)
        if unread is None:
            self._read |= {numbers_told} if numbers_told is not None else set()
            return result
        told = f"{unread} {frame_line_text(frame)}"
        is_figure = not _CALLED_MASK.search(unread) and (name in _FOR_READERS or not result.requires_grad)
        beside = is_in_tuple_assignment(frame.f_code, frame.f_lasti)
        parameters, unpacked = tuple(self._leaf_parameter_names(result)), numbers_told if beside else None
        self._found.append(_UnreadValue(told, frame.f_code, is_figure, parameters, unpacked))
        return _altered_values(result) if told in self._spoiled else result

    def _leaf_parameter_names(self, value: Tensor) -> Iterator[str]:
        """Yield the names of parameters that a value is computed from."""
        for node in walk_graph_nodes([value]):
            if (name := self._names.get(id(getattr(node, "variable", None)))) is not None:
                yield name


def _data_fingerprint(name: str, value: Tensor) -> str | None:
    """Return what tells the numbers of data that an operation made; None for what is large, or stands for many rows in `vmap`."""
    if value.numel() > _MOST_NUMBERS or value.layout is not torch.strided:
        return None
    if torch._C._functorch.is_functorch_wrapped_tensor(value):
        return None
    numbers = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return f"{name} {tuple(value.shape)} {hashlib.sha256(numbers).hexdigest()}"


def _altered_values(value: Tensor) -> Tensor:
    if value.dtype is torch.bool:
        return ~value
    return (
        value * float("nan") if value.is_floating_point() or value.is_complex() else torch.zeros_like(value)
    )


def _user_stack_codes() -> Iterator[CodeType]:
    frame = innermost_user_frame(sys._getframe(1))
    while frame is not None:
        yield frame.f_code
        frame = innermost_user_frame(frame.f_back)
