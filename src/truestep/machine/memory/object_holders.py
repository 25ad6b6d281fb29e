# SPDX-License-Identifier: Apache-2.0
"""What holds an object: the way from a module, a class or a running function to it, as one would write it.

`__main__.history[17]`, `__main__.model.layer1.weight`, `batch in train() (train.py:12)`.
"""

import gc
import re
import sys
import time
import types
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain
from traceback import walk_stack
from typing import Any

from truestep.core.text_formatting import a_type

MAX_PATHS = 2
MAX_DEPTH = 24
MAX_LOOKS = 150  # each look asks the garbage collector about every object of the process
MAX_SECONDS = 5.0  # for all questions together
_OPTIMIZED = 0x1  # CO_OPTIMIZED: a function's frame, whose f_locals is a copy before Python 3.13
_OWN = __name__.rpartition(".")[0]
_SUSPENDED = {types.GeneratorType: "gi", types.CoroutineType: "cr", types.AsyncGeneratorType: "ag"}
_SPECIAL = ("__closure__", "cell_contents", "__self__", "__func__", "__traceback__", "tb_next", "tb_frame", "__defaults__",
            "__kwdefaults__", "args", "func", "keywords")  # fmt: skip
# nn.Module keeps its parts in dicts of these names; one writes model.weight and model[0]
_MODULE_PART = re.compile(r"\._(?:parameters|buffers|modules)\['(\w+)'\]")
_KEY = re.compile(r"\['(\w+)'\]")

Steps = tuple[str, ...]


class ReferrerPathFinder:
    """Finds paths to objects; the roots are read once, for several questions."""

    def __init__(self, ignored: Iterable[Any] = (), max_seconds: float | None = None) -> None:
        modules = [each for each in list(sys.modules.items()) if isinstance(each[1], types.ModuleType)]
        # reversed: a module of two names keeps the older one (__main__ is __mp_main__ too)
        self.modules = {id(vars(module)): name for name, module in reversed(modules)}
        self.locals = dict(_running_locals())
        self.ignored = {id(item) for item in ignored}
        self.max_seconds = MAX_SECONDS if max_seconds is None else max_seconds
        self.end = time.monotonic() + self.max_seconds

    def paths_to(self, target: Any) -> tuple[str, ...]:
        """Return up to MAX_PATHS paths, shortest first; none where nothing in Python holds it."""
        items, steps_of = [target], list[Steps]([()])  # two lists: pairs would themselves refer to each item
        seen = {id(items), *self.ignored}
        paths: dict[str, None] = {}
        for look in range(MAX_LOOKS):
            if look == len(items) or len(paths) >= MAX_PATHS:
                break
            if time.monotonic() > self.end:
                return tuple(paths) or (f"not found within {self.max_seconds:g} s",)
            self._expand_referrers(items, steps_of, look, seen, paths)
        return tuple(paths)[:MAX_PATHS]

    def _expand_referrers(
        self, items: list[Any], steps_of: list[Steps], look: int, seen: set[int], paths: dict[str, None]
    ) -> None:
        """Note the paths that end at one item, and put its holders to the end of the queue."""
        item, steps = items[look], steps_of[look]
        if id(item) in self.locals:
            paths.setdefault(_path_text(self.locals[id(item)], steps))
        for holder in _unseen_referrers(item, seen):
            root, step = self._root_name_and_step(holder, item)
            longer = (step, *steps) if step else _first_key_as_attribute(steps)
            if root is not None:
                way = _first_key_as_attribute(longer) if isinstance(holder, dict) else longer
                paths.setdefault(_path_text(root, way))
            elif len(steps) < MAX_DEPTH:
                items.append(holder)
                steps_of.append(longer)

    def _root_name_and_step(self, holder: Any, item: Any) -> tuple[str | None, str]:
        """Return a root's name, if the holder is one, and how the holder leads to the item."""
        frame, state = holder, "kept by a traceback"
        if type(holder) in _SUSPENDED:
            frame, state = getattr(holder, f"{_SUSPENDED[type(holder)]}_frame"), "suspended"
        if isinstance(frame, types.FrameType):
            return f"{_frame_location(frame)} {state}", _step_from_holder_to_item(frame, item)
        if isinstance(holder, type):
            return f"{holder.__module__}.{holder.__qualname__}", ""
        return self.modules.get(id(holder)), _step_from_holder_to_item(holder, item)


def _unseen_referrers(item: Any, seen: set[int]) -> list[Any]:
    found = []
    for holder in gc.get_referrers(item):
        if id(holder) not in seen and not _is_object_of_this_search(holder):
            seen.add(id(holder))
            found.append(holder)
    return found


def _is_object_of_this_search(holder: Any) -> bool:
    if isinstance(holder, types.FrameType):
        return str(holder.f_globals.get("__name__", "")).startswith(_OWN)
    module = type(holder).__module__
    return isinstance(module, str) and module.startswith(_OWN)


def _running_locals() -> Iterator[tuple[int, str]]:
    """Yield (id, name) of every local variable of every running function, in all threads."""
    for innermost in list(sys._current_frames().values()):
        for frame, _ in walk_stack(innermost):
            if frame.f_code.co_flags & _OPTIMIZED and not _is_object_of_this_search(frame):
                place = _frame_location(frame)
                for name, value in _copied_locals(frame).items():
                    yield id(value), f"{name} in {place}"


def _copied_locals(frame: types.FrameType) -> dict[str, Any]:
    """Return a frame's locals without leaving a second reference to each of them in the frame."""
    mapping = frame.f_locals
    found = dict(mapping)
    if sys.version_info < (3, 13) and frame.f_code.co_flags & _OPTIMIZED:
        mapping.clear()  # before 3.13 this is a copy that the frame keeps, and with it every value
    return found


def _frame_location(frame: types.FrameType) -> str:
    code = frame.f_code
    return f"{code.co_qualname}() ({code.co_filename.rpartition('/')[2]}:{frame.f_lineno})"


def _step_from_holder_to_item(holder: Any, item: Any) -> str:
    """Return how a holder leads to an item; "" where this is the dict of its attributes."""
    if getattr(holder, "__dict__", None) is item:
        return ""
    held, unknown = _items_held_by(holder)
    return next((name for name, value in held if value is item), unknown)


def _items_held_by(holder: Any) -> tuple[Iterable[tuple[str, Any]], str]:
    """Return what a holder holds, by its name there, and what is said of something that has none."""
    if isinstance(holder, types.FrameType):
        return ((f" as {name}", value) for name, value in _copied_locals(holder).items()), " on its stack"
    if isinstance(holder, dict):
        return ((_key_text(key), value) for key, value in list(holder.items())), "[as a key]"
    if isinstance(holder, list | tuple | deque):
        return ((f"[{place}]", value) for place, value in enumerate(holder)), "[?]"
    stored = getattr(holder, "__dict__", None)
    attributes = list(stored.items()) if isinstance(stored, dict) else []
    slots = [name for kind in type(holder).__mro__ for name in getattr(kind, "__slots__", ())]
    others = ((name, _printable(holder, name)) for name in (*slots, *_SPECIAL))
    named = ((f".{name}", value) for name, value in chain(attributes, others))
    return named, f".<in {type(holder).__name__}>"


def _key_text(key: Any) -> str:
    return f"[{key!r}]" if isinstance(key, str | int) else f"[{a_type(key)}]"


def _printable(holder: Any, name: str) -> Any:
    try:
        return getattr(holder, name, None)
    except Exception:  # noqa: BLE001  a property of somebody's class may do anything
        return None


def _first_key_as_attribute(steps: Steps) -> Steps:
    """Return the steps with the first key written as an attribute: its dict is one of attributes."""
    return (_KEY.sub(r".\1", steps[0], count=1), *steps[1:]) if steps else steps


def _path_text(root: str, steps: Steps) -> str:
    def part_text(match: re.Match[str]) -> str:
        return f"[{match[1]}]" if match[1].isdigit() else f".{match[1]}"

    return _MODULE_PART.sub(part_text, root + "".join(steps))
