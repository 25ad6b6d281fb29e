# SPDX-License-Identifier: Apache-2.0
"""The files that data maps into memory or holds open: what can be seen cheaply of them, so that a change is said."""

import io
import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch

from truestep.core.state_trees import own_attributes

MOST_OBJECTS = 500  # that are looked at: a data set may hold a million of anything
MOST_MEMBERS = 64  # of a list or dict that is looked into
_PLAIN = (str, bytes, int, float, complex, type(None), type)


class HeldFile(NamedTuple):
    """A file as it was when it was looked at."""

    path: str
    size: int
    number: tuple[int, int]
    """What tells it from another file of the same path."""
    is_mapped: bool


def files_used_by_data(data: Any) -> list[HeldFile]:
    """Return the files that data maps, or holds open for reading, in attributes, lists and dicts of its own."""
    found: dict[str, HeldFile] = {}
    waiting, seen = deque([data]), {id(data)}
    while waiting and len(seen) < MOST_OBJECTS:
        value = waiting.popleft()
        named = _memory_map_path(value) or _open_file_path(value)
        if named is not None and (held := _inspect_file(*named)) is not None:
            found.setdefault(held.path, held)
        for part in _children_without_code(value):
            if not isinstance(part, _PLAIN) and id(part) not in seen:
                seen.add(id(part))
                waiting.append(part)
    return [*found.values()]


def reinspect_file(held: HeldFile) -> HeldFile | None:
    """Return a file as it is now; None where there is none."""
    return _inspect_file(held.path, held.is_mapped)


def _inspect_file(path: str, is_mapped: bool) -> HeldFile | None:
    try:
        status = Path(path).stat()
    except (OSError, ValueError):
        return None
    return HeldFile(os.path.realpath(path), status.st_size, (status.st_dev, status.st_ino), is_mapped)


def _memory_map_path(value: Any) -> tuple[str, bool] | None:
    """Return the path of a memory map of NumPy's; torch does not tell those of its own."""
    path = value.filename if isinstance(value, np.memmap) else None
    return None if path is None else (os.fspath(path), True)


def _open_file_path(value: Any) -> tuple[str, bool] | None:
    if not isinstance(value, io.IOBase) or value.closed or not value.readable() or value.writable():
        return None
    name = getattr(value, "name", None)
    return (os.fsdecode(name), False) if isinstance(name, (str, bytes)) else None


def _children_without_code(value: Any) -> Iterator[Any]:
    """Yield what an object of the user's holds; nothing is asked for that could run code of its own, or import something."""
    if isinstance(value, (np.ndarray, torch.Tensor, io.IOBase, ModuleType)):
        return
    if isinstance(value, Mapping) and len(value) <= MOST_MEMBERS:
        yield from value.values()
    elif isinstance(value, (list, tuple)) and len(value) <= MOST_MEMBERS:
        yield from value
    elif isinstance(value, FunctionType):
        yield from (cell.cell_contents for cell in value.__closure__ or () if _has_cell_contents(cell))
    elif isinstance(value, MethodType):
        yield value.__self__
    yield from [*own_attributes(value).values()]


def _has_cell_contents(cell: CellType) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:  # not assigned yet
        return False
    return True


def file_sizes_by_name(files: Sequence[HeldFile]) -> dict[str, int]:
    """Return the sizes as a checkpoint keeps them; another machine may have the files in another place."""
    names = [Path(each.path).name for each in files]
    if len({*names}) < len(names):
        names = ["/".join(Path(each.path).parts[-2:]) for each in files]
    return {name: each.size for name, each in zip(names, files, strict=True)}


def changed_file_sizes_text(before: Mapping[str, int], now: Mapping[str, int]) -> str | None:
    """Return how files differ from those that a run was saved with, where their samples are taken for the same."""
    changed = [
        f"{name} had {before[name]:,} bytes when the run was saved and has {now[name]:,} now"
        for name in before.keys() & now.keys()
        if before[name] != now[name]
    ]
    if not changed:
        return None
    told = "; ".join(sorted(changed))
    return f"its file {told}: the number of samples and a few of them are compared with those of then, and not the others"
