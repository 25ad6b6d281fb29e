# SPDX-License-Identifier: Apache-2.0
"""What a learner's code decides that is in no tensor: the options of its layers, and which parameters train."""

import hashlib
import json
from types import BuiltinFunctionType, FunctionType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from truestep.engine.parts import LearnerParts

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


def frozen_parameters(learner: "LearnerParts") -> list[str]:
    """Return the names of the parameters that require no gradient now."""
    return [name for name, parameter in learner.weights.named if not parameter.requires_grad]


def code_settings(learner: "LearnerParts") -> dict[str, Any]:
    """Return what a checkpoint keeps of it: both as the code made them, and which parameters are frozen now."""
    return {
        "layers": learner.layers,
        "frozen_at_start": learner.frozen_at_start,
        "frozen": frozen_parameters(learner),
    }


def changed_code_settings(learner: "LearnerParts", saved: dict[str, Any]) -> list[str]:
    """Return what the code makes otherwise than when `saved` was taken; nothing of what an older checkpoint lacks."""
    found = changed_layer_options(saved["layers"], learner.layers) if "layers" in saved else []
    if "frozen" in saved and not _starts_as_saved(learner, saved):
        before = set(saved["frozen_at_start"])
        now = set(learner.frozen_at_start)
        listed = ("frozen", sorted(now - before)), ("no longer frozen", sorted(before - now))
        found += [f"{what} {_first(names)}" for what, names in listed if names]
    return found


def _starts_as_saved(learner: "LearnerParts", saved: dict[str, Any]) -> bool:
    """Whether the code begins as it did; a notebook's cell that is run again begins with a module as the loop has left it."""
    return learner.frozen_at_start in (saved["frozen_at_start"], saved["frozen"])


def _first(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def freeze_as_saved(learner: "LearnerParts", saved: dict[str, Any]) -> None:
    """Let the parameters train that did at the save, unless the code begins with others: those are an edit, and used."""
    if "frozen" not in saved or not _starts_as_saved(learner, saved):
        return
    learner.frozen_at_start = saved["frozen_at_start"]
    frozen = set(saved["frozen"])
    for name, parameter in learner.weights.named:
        if parameter.requires_grad == (name in frozen):
            parameter.requires_grad_(name not in frozen)
