# SPDX-License-Identifier: Apache-2.0
"""Lists that data is read from, looked at again: one that grows or whose items move, as a replay buffer's do, keeps no order."""

import operator
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from torch.utils.data import ConcatDataset, DataLoader, StackDataset

from truestep.engine.data.mixture import Mixture

_LOOKED_AT = 64  # items from all over a list, when a pass begins
_Items = list[Any] | deque[Any]


class ListChange(NamedTuple):
    """How a list is no longer what `run.data` was given."""

    before: int
    now: int
    """Items then and now; as many where others stand in their places."""
    is_data_itself: bool
    """Whether the list was given; else the data set that holds it counts by it."""


class WatchedDataList:
    """A list as it was when it was given as data, or held by what was."""

    def __init__(self, items: _Items, holder: Any = None, name: str = "") -> None:
        """`holder` is the data set that has the list as its attribute `name`; None where the list is the data."""
        self._items, self._holder, self._name = items, holder, name
        self._size = _builtin_length(items)
        # a list that an object holds beside its samples may fill up, as a cache does; a deque that moves is no cache
        self._compares_items = holder is None or isinstance(items, deque)
        self._some = _items_spread_over_list(items) if self._compares_items else ()

    def is_held_by(self, value: Any) -> bool:
        """Whether an object is the list or has it, or what counts by it, as an attribute."""
        own = [value, *vars(value).values()] if hasattr(value, "__dict__") else [value]
        return any(each is self._items or (self._holder is not None and each is self._holder) for each in own)

    def change(self, *, whole: bool) -> ListChange | None:
        """Return what is other now; `whole` compares items from all over it, and not its ends alone."""
        items = self._items if self._holder is None else getattr(self._holder, self._name, self._items)
        if not isinstance(items, (list, deque)):
            return None
        now = _builtin_length(items)
        if now != self._size:
            return self._size_change(now)
        if not self._compares_items or not now:
            return None
        some = _items_spread_over_list(items) if whole else _first_and_last_items(items)
        kept = self._some if whole else (self._some[0], self._some[-1])
        if all(map(operator.is_, some, kept)):
            return None
        return ListChange(now, now, self._holder is None)

    def _size_change(self, now: int) -> ListChange | None:
        if self._holder is not None and len(self._holder) == self._size:
            return None  # it counts by something else after all
        return ListChange(self._size, now, self._holder is None)


def _builtin_length(items: _Items) -> int:
    # a class of the user's may count, or give, something else than what lies in the list
    return deque.__len__(items) if isinstance(items, deque) else list.__len__(items)


def _first_and_last_items(items: _Items) -> tuple[Any, Any]:
    get: Any = deque.__getitem__ if isinstance(items, deque) else list.__getitem__
    return get(items, 0), get(items, -1)


def _items_spread_over_list(items: _Items) -> Sequence[Any]:
    """Return items from all over a list; of a deque its ends, which move with all others and are the cheap ones to reach."""
    if isinstance(items, deque) or not _builtin_length(items):
        return _first_and_last_items(items) if _builtin_length(items) else ()
    step = max(1, _builtin_length(items) // _LOOKED_AT)
    return [*list.__getitem__(items, slice(None, None, step)), list.__getitem__(items, -1)]


def lists_of_data(data: Any) -> list[WatchedDataList]:
    """Return the lists that data is, is put together from, or counts by."""
    return [*_watched_lists_of(data)]


def _watched_lists_of(data: Any) -> Iterator[WatchedDataList]:
    if isinstance(data, (list, deque)):
        yield WatchedDataList(data)
    elif isinstance(data, DataLoader):
        yield from _watched_lists_of(data.dataset)
    elif isinstance(data, (ConcatDataset, StackDataset, Mixture)):
        parts = data.sources if isinstance(data, Mixture) else data.datasets
        for part in parts.values() if isinstance(parts, Mapping) else parts:
            yield from _watched_lists_of(part)
    else:
        yield from _lists_in_attributes(data)


def _lists_in_attributes(data: Any) -> Iterator[WatchedDataList]:
    held = getattr(data, "__dict__", None)
    for name, value in held.items() if isinstance(held, dict) else ():
        if isinstance(value, (list, deque)) and value and _has_length_of_list(data, value):
            yield WatchedDataList(value, data, name)


def _has_length_of_list(data: Any, items: _Items) -> bool:
    try:
        return len(data) == len(items)
    except (TypeError, NotImplementedError):
        return False
