# SPDX-License-Identifier: Apache-2.0
"""Whether a data set is another than the copy that workers have: a curriculum's level was set, the strength of an augmentation.

It is looked at between passes, and not whole: values in arrays are not read, and fields beyond the first thousand are left out.
"""

from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

from torch import Tensor

from truestep.core.tensor_bytes import tensor_version
from truestep.core.weak import WeakIdentity

_MOST_FIELDS = 1000
_MOST_ITEMS = 64  # of a list or dict that holds settings, not samples
_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_NO_DATA = (type, FunctionType, ModuleType)


def data_change_markers(data: Any) -> list[object]:
    """Return what is other as soon as a field of the data set, or of what it holds, is set or changed in place."""
    marks: list[object] = []
    waiting, seen = [data], {id(data)}
    while waiting and len(marks) < _MOST_FIELDS:
        for name, value in _iterate_fields(waiting.pop()):
            marks.append((name, *_change_marker(value)))
            if id(value) not in seen and not isinstance(value, (*_PLAIN, *_NO_DATA, Tensor)):
                seen.add(id(value))
                waiting.append(value)
    return marks[:_MOST_FIELDS]


def _iterate_fields(holder: Any) -> Iterator[tuple[object, Any]]:
    if isinstance(holder, dict):
        yield from holder.items() if len(holder) <= _MOST_ITEMS else ()
    elif isinstance(holder, (list, tuple)):
        yield from enumerate(holder) if len(holder) <= _MOST_ITEMS else ()
    else:
        held = getattr(holder, "__dict__", None)
        yield from list(held.items()) if isinstance(held, dict) else ()


def _change_marker(value: Any) -> tuple[object, ...]:
    if isinstance(value, _PLAIN):
        return type(value), value
    if isinstance(value, Tensor):
        return WeakIdentity(value), tensor_version(value)
    return WeakIdentity(value), len(value) if isinstance(value, (list, dict, set, tuple)) else None
