# SPDX-License-Identifier: Apache-2.0
"""Objects that the user's code decides with, as text: the name of a class or function and its fields, without addresses."""

import hashlib
import re
import sys
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType, SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

import torch

from truestep.core.call_site import closure_variables

_PLAIN = (bool, int, float, complex, str, type(None), torch.dtype, torch.device, Enum)
_FUNCTIONS = (FunctionType, BuiltinFunctionType)
_OF_PYTHON = (SimpleNamespace, Namespace)  # of its own classes, those that hold a user's options
# packages whose objects (a layer, a generator) are looked at elsewhere, or not at all
_NO_OPTIONS = {"torch", "numpy", "truestep"}
_first_given: "WeakKeyDictionary[Any, dict[str, _DescribedText]]" = WeakKeyDictionary()
_LONGEST, _LONGEST_OBJECT, _MOST_FIELDS, _MOST_VALUES = 200, 2000, 256, 16


class _DescribedText(str):
    """What was described before."""

    __slots__ = ()


def plain_value_text(value: Any) -> str | None:
    """Return a plain value, a function, or a list of plain values as text, None for any other: a hash of a long one."""
    if isinstance(value, _FUNCTIONS):
        return str(value.__name__)
    if isinstance(value, _PLAIN):
        # an Enum by its name alone: its own text may be anything
        return (
            f"{type(value).__name__}.{value.name}" if isinstance(value, Enum) else _hash_if_long(repr(value))
        )
    if isinstance(value, tuple | list) and all(isinstance(v, _PLAIN) for v in value):
        return _hash_if_long(repr(value))
    return None


def _hash_if_long(text: str, longest: int = _LONGEST) -> str:
    return text if len(text) <= longest else f"***{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def option_fields(value: Any) -> dict[str, Any]:
    """Return what an object of options holds by name (a data class, a plain object, a dict); nothing of any other object.

    Not of what python, torch or NumPy make themselves, and not of a table: its many entries are data.
    """
    if isinstance(value, Mapping):
        named = len(value) <= _MOST_FIELDS and all(isinstance(key, str) for key in value)
        return dict(value) if named else {}
    found = own_fields(value) if _may_hold_options(value) else {}
    return found if len(found) <= _MOST_FIELDS else {}


def _may_hold_options(value: Any) -> bool:
    kind = type(value)
    package = kind.__module__.partition(".")[0]
    of_others = package in _NO_OPTIONS or package in sys.stdlib_module_names - {"__main__"}
    return not isinstance(value, type | torch.nn.Module) and (isinstance(value, _OF_PYTHON) or not of_others)


def own_fields(value: Any) -> dict[str, Any]:
    """Return the attributes of an object, those in slots of a data class too; none of its code is run."""
    held = dict(getattr(value, "__dict__", {}))
    slots = [each.name for each in fields(value) if each.name not in held] if is_dataclass(value) else []
    return {name: getattr(value, name) for name in slots if hasattr(value, name)} | held


def describe_value(value: Any) -> str:
    """Return a class's or a function's name with its fields as text, two levels deep, and a hash of a long one."""
    return _hash_if_long(_describe_to_depth(value, 2), _LONGEST_OBJECT)


def _describe_to_depth(value: Any, depth: int) -> str:
    if isinstance(value, _DescribedText):
        return str(value)
    if isinstance(value, torch.Tensor):
        small = value.numel() <= _MOST_VALUES
        return f"Tensor({value.tolist()})" if small else f"Tensor of shape {tuple(value.shape)}"
    if isinstance(value, type):
        return value.__qualname__
    if isinstance(value, _FUNCTIONS):
        return f"<function {value.__qualname__}{_bound_plain_values(value)}>"
    if isinstance(value, MethodType):
        return f"{_describe_to_depth(value.__self__, depth)}.{value.__name__}"
    if isinstance(value, partial):
        return _describe_call(
            "partial", {"": value.func, **dict(enumerate(value.args)), **value.keywords}, depth
        )
    if (text := plain_value_text(value)) is not None:
        return text
    if isinstance(value, Mapping | list | tuple):
        items = dict(value) if isinstance(value, Mapping) else dict(enumerate(value))
        return _describe_call(type(value).__qualname__, items, depth)
    held = own_fields(value)
    if not held and not _may_hold_options(value):
        return re.sub(r" at 0x[0-9a-f]+", "", repr(value))
    listed = is_dataclass(value) or _may_hold_options(value)
    options = held | _first_description(value, held, depth - 1) if listed else {}
    return _describe_call(type(value).__qualname__, options, depth)


def _first_description(value: Any, held: Mapping[str, Any], depth: int) -> dict[str, Any]:
    """Return, as text, what an object keeps in checkpoints by itself: as it was when this process described the object first.

    It moves as the training goes, and a run that is made again with the object is no changed one.
    """
    if depth < 0 or not (hasattr(value, "state_dict") and hasattr(value, "load_state_dict")):
        return {}
    try:
        if value not in _first_given:
            names = {str(name).strip("_") for name in value.state_dict()}
            kept = {name: each for name, each in held.items() if name.strip("_") in names}
            _first_given[value] = {
                name: _DescribedText(_describe_to_depth(each, depth)) for name, each in kept.items()
            }
        return dict(_first_given[value])
    except TypeError:  # it has no hash or takes no weak reference, or its state has no names
        return {}


def _describe_call(name: str, held: Mapping[Any, Any], depth: int) -> str:
    if depth == 0 or len(held) > _MOST_FIELDS:
        return f"{name}(...)"
    return f"{name}({', '.join(f'{key}={_describe_to_depth(each, depth - 1)}'.removeprefix('=') for key, each in held.items())})"


def _bound_plain_values(function: Any) -> str:
    """Return the plain values that a function has by its defaults, and from the function that made it."""
    if (code := getattr(function, "__code__", None)) is None:
        return ""
    held = closure_variables(function).nonlocals if code.co_freevars else {}
    defaults = function.__defaults__ or ()
    names = code.co_varnames[: code.co_argcount][-len(defaults) :] if defaults else ()
    held = {**held, **dict(zip(names, defaults, strict=True)), **(function.__kwdefaults__ or {})}
    texts = {name: plain_value_text(each) for name, each in held.items()}
    return "".join(f" {name}={text}" for name, text in texts.items() if text is not None)
