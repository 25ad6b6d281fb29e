# SPDX-License-Identifier: Apache-2.0
"""What a learner's code decides that is in no tensor: the types and options of its layers."""

import hashlib
import json
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch
from torch import nn

_PLAIN = (bool, int, float, complex, str, type(None), torch.dtype)
_FUNCTIONS = (FunctionType, BuiltinFunctionType)
_LONGEST, _NAMED = 200, 4


def layer_options(module: nn.Module) -> str:
    """Return the type and the plain attributes (`p`, `eps`, `stride`, a function) of each part of a module, as JSON.

    One text: a checkpoint of many layers has no leaf more for each. The mode is left out: `train()` and `eval()` move it.
    """
    found = {path: [type(layer).__name__, _plain_attributes(layer)] for path, layer in module.named_modules()}
    return json.dumps(found)


def changed_layer_options(saved: str, now: str) -> list[str]:
    """Return what differs of two `layer_options`, by the layers' paths."""
    before, after = json.loads(saved), json.loads(now)
    found = []
    for path in after | before:
        (kind, options), (old_kind, old) = (each.get(path, ["nothing", {}]) for each in (after, before))
        if kind != old_kind:
            found.append(f"{path or 'module'}={kind}, before {old_kind}")
            continue
        found += [
            f"{path}.{name}".lstrip(".")
            + f"={options.get(name, 'nothing')}, before {old.get(name, 'nothing')}"
            for name in options | old
            if options.get(name) != old.get(name)
        ]
    return found if len(found) <= _NAMED else [*found[:_NAMED], f"{len(found) - _NAMED} more of its layers"]


def _plain_attributes(layer: nn.Module) -> dict[str, str]:
    shown = {
        name: _shown(value)
        for name, value in vars(layer).items()
        if not name.startswith("_") and name != "training"
    }
    return {name: text for name, text in shown.items() if text is not None}


def _shown(value: Any) -> str | None:
    """Return a plain value as text, None for any other: a hash of a long one."""
    if isinstance(value, _FUNCTIONS):
        return str(value.__name__)
    is_plain = isinstance(value, _PLAIN)
    if not is_plain and not (isinstance(value, tuple | list) and all(isinstance(v, _PLAIN) for v in value)):
        return None
    text = repr(value)
    return text if len(text) <= _LONGEST else f"***{hashlib.sha256(text.encode()).hexdigest()[:16]}"
