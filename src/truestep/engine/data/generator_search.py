# SPDX-License-Identifier: Apache-2.0
"""Generators that a data set keeps for itself, found wherever they hide."""

import functools
import random
import types
from collections import deque
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np
import torch

from truestep.engine.data.generators import SampleGenerator, sample_generator_of

OBJECTS_SEEN = 20_000  # a data set may hold a million file names: the search has an end,
LONG = 1000  # and looks into containers longer than this last
_NUMBERS = (int, float, complex, np.ndarray, np.generic, torch.Tensor, torch.Size)
_LEAVES = (*_NUMBERS, str, bytes, type(None), type)
_CONTAINERS = (list, tuple, deque, Mapping)


def find_sample_generators(root: Any) -> dict[str, SampleGenerator]:
    """Return the generators that can be reached from `root`, by what one writes to reach each.

    Looks through attributes, slots, lists, dicts, partial functions, closures, and the module variables
    that the methods of an object mention, with those attributes of these that they mention.
    """
    found: dict[str, SampleGenerator] = {}
    seen = {id(random._inst), id(np.random.mtrand._rand), id(torch.default_generator)}
    seen.add(id(np.random.mtrand._rand._bit_generator))
    keep = []  # what is made on the way must live on, or its id would be given to another
    waiting, later = deque([("data", root)]), deque[tuple[str, Any]]()
    while (waiting or later) and len(seen) < OBJECTS_SEEN:
        if not waiting:
            waiting.extend(islice(_named_children(*later.popleft()), OBJECTS_SEEN))
            continue
        name, value = waiting.popleft()
        if isinstance(value, _LEAVES) or id(value) in seen:
            continue
        seen.add(id(value))
        keep.append(value)
        stream = sample_generator_of(value)
        if stream is None and isinstance(value, _CONTAINERS) and len(value) > LONG:
            later.append((name, value))
        elif stream is None:
            waiting.extend(_named_children(name, value))
        elif _bits(value) is None or id(_bits(value)) not in seen:
            found[name] = stream
    return found


def _bits(generator: Any) -> Any:
    """Return the bit generator below a generator of numpy's; torch's and python's have none."""
    return getattr(generator, "bit_generator", None) or getattr(generator, "_bit_generator", None)


def _named_children(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from (
            (f"{name}[{key!r}]", part) for key, part in value.items() if not isinstance(part, _LEAVES)
        )
    elif isinstance(value, _CONTAINERS):
        parts = ((number, part) for number, part in enumerate(value) if not isinstance(part, _LEAVES))
        yield from ((f"{name}[{number}]", part) for number, part in parts)
    elif isinstance(value, functools.partial):
        yield from ((f"{name}.{part}", getattr(value, part)) for part in ("func", "args", "keywords"))
    elif isinstance(value, types.MethodType):
        yield from ((f"{name}.{part}", getattr(value, part)) for part in ("__self__", "__func__"))
    elif isinstance(value, types.FunctionType):
        yield from _children_of_function(name, value)
    elif isinstance(value, types.BuiltinFunctionType):  # as in self.draw = rng.normal
        yield f"{name}.__self__", value.__self__
    elif not isinstance(value, types.ModuleType):
        yield from _children_of_object(name, value)


def _children_of_function(name: str, function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            yield f"{name}.{variable}", cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    yield from ((f"{name}.__defaults__[{i}]", part) for i, part in enumerate(function.__defaults__ or ()))
    yield from (function.__kwdefaults__ or {}).items()
    for code in _nested_codes(function.__code__):
        for variable in code.co_names:
            part = function.__globals__.get(variable)
            named = {f"{function.__module__}.{variable}": part, **_mentioned_attributes(part, variable, code)}
            yield from ((name, each) for name, each in named.items() if sample_generator_of(each) is not None)


def _mentioned_attributes(value: Any, name: str, code: types.CodeType) -> dict[str, Any]:
    """Return what a module variable holds under names that the same code mentions: `job.rng` where it reads `job` and `rng`."""
    held = getattr(value, "__dict__", None)
    if not isinstance(held, Mapping):
        return {}
    return {f"{name}.{each}": held[each] for each in code.co_names if each in held}


def _nested_codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield the code of a function and of what is defined inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _nested_codes(constant)


def _children_of_object(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    attributes = getattr(value, "__dict__", None)
    if isinstance(attributes, dict):
        yield from ((f"{name}.{key}", part) for key, part in list(attributes.items()))
    for base in type(value).__mro__:
        if base.__module__.partition(".")[0] in ("builtins", "torch", "numpy"):
            continue
        slots = base.__dict__.get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            if hasattr(value, slot):
                yield f"{name}.{slot}", getattr(value, slot)
        for method in list(vars(base).values()):
            plain = getattr(method, "__func__", method)  # static and class methods
            if isinstance(plain, types.FunctionType):
                yield f"{base.__qualname__}.{plain.__name__}", plain
            elif sample_generator_of(method) is not None:
                name = next(name for name, part in vars(base).items() if part is method)
                yield f"{base.__qualname__}.{name}", method
