# SPDX-License-Identifier: Apache-2.0
"""What the body of an epoch writes into its data behind the batches: labels that a model gave, an order of the hard examples.

What stands above the batches runs again when an epoch is gone on with, so a data set that is told its epoch there is not meant.
"""

import inspect
import re
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import DataLoader

from truestep.core.state_trees import own_attributes
from truestep.core.tensor_bytes import tensor_version
from truestep.run.state import RunState
from truestep.run.stream_cursor import StreamCursor

_DEEPEST = 4  # a data set within a subset within a loader
_MOST_PARTS = 64  # of which data is put together
_LARGEST = 1 << 20  # items of a list, or bytes of an array, that are compared


class _HeldValues(NamedTuple):
    """Values that a data set reads from, as they were behind the last batch."""

    label: str
    holder: Any
    name: str
    value: Any
    mark: object


class OverwrittenDataWatcher:
    """Compares what the data of a pass holds behind its last batch with what it holds at the end of the epoch's body."""

    def __init__(self, run: RunState) -> None:
        self._run = run
        self._held: dict[tuple[str, int, str], _HeldValues] = {}

    def pass_over(self, stream: StreamCursor) -> None:
        """The last batch of a pass is done."""
        for holder, name, value in _held_values_of_dataset(stream.source.given):
            held = _HeldValues(stream.label, holder, name, value, _change_mark(value))
            self._held[stream.label, id(holder), name] = held

    def epoch_over(self) -> None:
        """The body of an epoch is done."""
        held, self._held = self._held, {}
        for each in held.values():
            now = own_attributes(each.holder).get(each.name)
            if (
                now is not None
                and _change_mark(now) != each.mark
                and not _is_written_by_reading(each)
                and not self._is_restored_by_user_code(each, now)
            ):
                self._run.screen.say_once(
                    _SAID.format(label=each.label, name=each.name, kind=type(each.holder).__name__),
                    key=f"written {each.label} {each.name}",
                )

    def _is_restored_by_user_code(self, held: _HeldValues, now: Any) -> bool:
        """Whether run.track or run.state has it: the user's own code brings it to where it was."""
        tracked = [*self._run.tracked.objects()]
        tracked += [value for each in tracked for value in own_attributes(each).values()]
        return any(each is held.holder or each is now for each in tracked) or any(
            _has_equal_values(each, now) for each in self._run.user.values()
        )


def _held_values_of_dataset(data: Any, depth: int = 0) -> Iterator[tuple[Any, str, Any]]:
    """Yield each data set with what it holds: tensors, arrays and lists of its own, also within those that it is made of."""
    if depth > _DEEPEST:
        return
    if isinstance(data, DataLoader):
        data = data.dataset
    for name, value in own_attributes(data).items():
        if _is_tensor_or_list_data(value):
            yield data, name, value
        parts = value if isinstance(value, list | tuple) and len(value) <= _MOST_PARTS else (value,)
        for part in parts:
            if hasattr(type(part), "__getitem__") and not isinstance(part, torch.Tensor):
                yield from _held_values_of_dataset(part, depth + 1)


def _is_tensor_or_list_data(value: Any) -> bool:
    if isinstance(value, tuple):
        return bool(value) and all(isinstance(each, torch.Tensor) for each in value)
    if isinstance(value, torch.Tensor | np.ndarray):
        return value.ndim > 0
    return isinstance(value, list) and len(value) > 1


def _change_mark(value: Any) -> object:
    """Return what is equal as long as nothing in a value has changed; of what is too large, nothing tells a change."""
    if isinstance(value, torch.Tensor):
        return value.data_ptr(), tuple(value.shape), tensor_version(value)
    if isinstance(value, tuple):
        return tuple(map(_change_mark, value))
    if isinstance(value, np.ndarray):
        return zlib.crc32(value.tobytes()) if value.nbytes <= _LARGEST and not value.dtype.hasobject else None
    return (
        [*value]
        if isinstance(value, list) and len(value) <= _LARGEST and _is_comparable_list(value)
        else None
    )


def _is_comparable_list(items: list[Any]) -> bool:
    return all(each is None or isinstance(each, int | float | str | tuple) for each in items)


def _is_written_by_reading(held: _HeldValues) -> bool:
    """Whether reading itself writes there, as an evaluation of the same data does behind the batches."""
    if isinstance(held.mark, list) and None in held.mark:
        return True
    reads = (getattr(type(held.holder), name, None) for name in ("__getitem__", "__getitems__", "__len__"))
    name = re.escape(held.name)
    writes = re.compile(rf"\.{name}(\[[^\n=]*\])?\s*[-+*/|&]?=(?!=)|\.{name}\.\w+_?\(")
    return any(writes.search(_source_or_empty(each)) for each in reads if each is not None)


def _source_or_empty(function: Any) -> str:
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return ""


def _has_equal_values(kept: Any, now: Any) -> bool:
    if isinstance(kept, Mapping):
        return any(_has_equal_values(each, now) for each in kept.values())
    if isinstance(kept, torch.Tensor) and isinstance(now, torch.Tensor):
        return kept.shape == now.shape and bool(torch.equal(kept.to(now), now))
    if isinstance(kept, np.ndarray) and isinstance(now, np.ndarray):
        return bool(np.array_equal(kept, now))
    return isinstance(kept, list) and isinstance(now, list) and kept == now


_SAID = (
    "the loop has changed {name!r} of the data of {label!r} ({kind}) behind the batches of an epoch, and no checkpoint has it: a "
    "run that goes on reads what the data began with, and ends elsewhere. Give {kind} state_dict() and load_state_dict() with "
    "{name!r}, and name it before the loop, run.track(data=data)"
)
