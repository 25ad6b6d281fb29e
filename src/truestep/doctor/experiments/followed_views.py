# SPDX-License-Identifier: Apache-2.0
"""Follows views of one value that overlap: one is written to in place, and another that was there before is read afterwards."""

import sys
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor

from truestep.core.frames import frame_of_user
from truestep.doctor.experiments.going_on import unseen
from truestep.doctor.experiments.outcome import ChildOutcome
from truestep.doctor.experiments.step_follower import StepFollower
from truestep.doctor.runtime.operations import watched_operation_tensors

# they put other numbers in the place of those that were there, where sums and products go on from them
_OVERWRITE = frozenset(
    {
        "masked_fill_",
        "fill_",
        "zero_",
        "copy_",
        "masked_scatter_",
        "index_fill_",
        "scatter_",
        "__setitem__",
        "clamp_",
    }
)
_MOST_VIEWS = 4000


class _View(NamedTuple):
    value: weakref.ref[Tensor]
    source: int  # the identity of what it is a view of
    form: tuple[Any, ...]
    span: tuple[int, int]  # of memory


class FollowedViews(StepFollower):
    """Within it views are followed until a backward.

    Args:
        apart: a line whose views have memory of their own before they are written to.

    Attributes:
        num_written: how many tensors were written over in place.
        overwritten: lines that write to a view of which another one is read afterwards.
    """

    def __init__(self, apart: str = "") -> None:
        super().__init__()
        self.overwritten: list[str] = []
        self.num_written = 0
        self._apart = apart
        self._views: dict[int, _View] = {}
        self._changed: dict[int, tuple[weakref.ref[Tensor], str]] = {}  # that another view wrote to

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if self._rests:
            return func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        with unseen():
            given = watched_operation_tensors(args, kwargs)
            is_write = name in _OVERWRITE and bool(given) and given[0] is args[0]
            self._look_at_reads(given[1:] if is_write else given)
            if is_write:
                self.num_written += 1
                self._writes(given[0], given[1:])
        result = func(*args, **(kwargs or {}))
        with unseen():
            if isinstance(result, Tensor) and given and result is not given[0]:
                self._note(result, given[0])
        return result

    def tell(self, seen: ChildOutcome) -> None:
        """Tell of the lines."""
        seen.overwritten_views, seen.num_written = self.overwritten, self.num_written

    def _note(self, result: Tensor, source: Tensor) -> None:
        if not result.numel() or len(self._views) > _MOST_VIEWS or _memory(result) != _memory(source):
            return
        form = (result.storage_offset(), result.shape, result.stride())
        self._views[id(result)] = _View(weakref.ref(result), id(source), form, _span(result))

    def _look_at_reads(self, given: Sequence[Tensor]) -> None:
        for each in given:
            known = self._changed.get(id(each))
            if known is not None and known[0]() is each and known[1] not in self.overwritten:
                self.overwritten.append(known[1])

    def _writes(self, target: Tensor, beside: Sequence[Tensor]) -> None:
        own, frame = self._views.get(id(target)), frame_of_user(sys._getframe(2))
        if own is None or own.value() is not target or frame is None:
            return
        line = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        for each in self._views.values():
            other = each.value()
            if other is None or other is target or any(other is one for one in beside):
                continue
            is_other = each.source == own.source and each.form != own.form
            if is_other and each.span[0] < own.span[1] and own.span[0] < each.span[1]:
                self._changed[id(other)] = each.value, line
        if line == self._apart:
            target.data = target.data.clone()


def _memory(value: Tensor) -> int:
    try:
        return value.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):  # of no memory
        return -1


def _span(value: Tensor) -> tuple[int, int]:
    first = value.data_ptr()
    last = sum((size - 1) * step for size, step in zip(value.shape, value.stride(), strict=True))
    return first, first + (last + 1) * value.element_size()
