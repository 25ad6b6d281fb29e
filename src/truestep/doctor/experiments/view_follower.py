# SPDX-License-Identifier: Apache-2.0
"""Follows views of one value that overlap: one is written to in place, and another that was there before is read afterwards."""

import weakref
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from truestep.doctor.experiments.follower_base import StepFollower, TensorNotes, frame_line_text, users_frame
from truestep.doctor.experiments.in_process_child import unseen
from truestep.doctor.runtime.operations import watched_operation_tensors

# they put other numbers in the place of those that were there, where sums and products go on from them
_OVERWRITE = frozenset(
    {"masked_fill_", "fill_", "zero_", "copy_", "masked_scatter_", "index_fill_", "scatter_", "__setitem__", "clamp_"}
)  # fmt: skip
_MOST_VIEWS = 4000


class _View(NamedTuple):
    value: weakref.ref[Tensor]
    source: int  # the identity of what it is a view of
    form: tuple[Any, ...]
    span: tuple[int, int]  # of memory


class ViewFollower(StepFollower):
    """Within it views are followed until a backward.

    Args:
        apart: a line whose views have memory of their own before they are written to.

    It finds:
        num_written: how many tensors were written over in place.
        overwritten: lines that write to a view of which another one is read afterwards.
    """

    def __init__(self, apart: str = "") -> None:
        super().__init__(overwritten=[], num_written=0)
        self._apart = apart
        self._views: dict[int, _View] = {}
        self._changed = TensorNotes[str]()  # that another view wrote to, and where

    def followed(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Look at what is read and written."""
        name = getattr(func, "__name__", "")
        with unseen():
            given = watched_operation_tensors(args, dict(kwargs))
            is_write = name in _OVERWRITE and bool(given) and given[0] is args[0]
            self._note_overwritten_reads(given[1:] if is_write else given)
            if is_write:
                self.found["num_written"] += 1
                self._note_overlapping_write(given[0], given[1:])
        result = func(*args, **kwargs)
        with unseen():
            if isinstance(result, Tensor) and given and result is not given[0]:
                self._note_view(result, given[0])
        return result

    def _note_view(self, result: Tensor, source: Tensor) -> None:
        if (
            not result.numel()
            or len(self._views) > _MOST_VIEWS
            or _storage_address(result) != _storage_address(source)
        ):
            return
        form = (result.storage_offset(), result.shape, result.stride())
        self._views[id(result)] = _View(weakref.ref(result), id(source), form, _address_range(result))

    def _note_overwritten_reads(self, given: Sequence[Tensor]) -> None:
        for each in given:
            if (line := self._changed.get(each)) is not None:
                self.note("overwritten", line)

    def _note_overlapping_write(self, target: Tensor, beside: Sequence[Tensor]) -> None:
        own, frame = self._views.get(id(target)), users_frame()
        if own is None or own.value() is not target or frame is None:
            return
        line = frame_line_text(frame)
        for each in self._views.values():
            other = each.value()
            if other is None or other is target or any(other is one for one in beside):
                continue
            is_other = each.source == own.source and each.form != own.form
            if is_other and each.span[0] < own.span[1] and own.span[0] < each.span[1]:
                self._changed[other] = line
        if line == self._apart:
            target.data = target.data.clone()


def _storage_address(value: Tensor) -> int:
    try:
        return value.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):  # of no memory
        return -1


def _address_range(value: Tensor) -> tuple[int, int]:
    first = value.data_ptr()
    last = sum((size - 1) * step for size, step in zip(value.shape, value.stride(), strict=True))
    return first, first + (last + 1) * value.element_size()
