# SPDX-License-Identifier: Apache-2.0
"""What a learner's code decides that is in no tensor: the types and options of its layers."""

import json
from collections.abc import Iterator
from typing import Any

from torch import nn

from truestep.engine.object_description import option_fields, plain_value_text

_NAMED = 4
Layers = dict[str, list[Any]]
"""Of each part of a module by its path: its type, and its options as text by name."""
Moved = dict[str, dict[str, Any]]
"""By path and name what is another than at the start: its value where it is to be put back, else None."""


class LayerOptions:
    """The options of a learner's layers: as its code began, and which of them have moved since.

    What moves in training (a counter, a cache) tells nothing of the code and is compared no more, but for the numbers of torch's
    own layers (`p`, `momentum`): those are options always, and are put back where a run goes on.
    """

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._at_start = layer_options(module)
        self._moved: Moved = {}

    def begin(self) -> None:
        """Take them as what the code begins with."""
        self._at_start = layer_options(self._module)

    def moved(self) -> Moved:
        """Return what is another than at the start, or was so at an earlier save."""
        found = {path: dict(names) for path, names in self._moved.items()}
        for path, layer, options in _options_by_layer(self._module):
            before = self._at_start.get(path, ["", options])[1]
            if options != before:
                names = [name for name in options | before if options.get(name) != before.get(name)]
                found[path] = found.get(path, {}) | {name: _torch_layer_number(layer, name) for name in names}
        return found

    def numbers(self, moved: Moved) -> dict[str, Any]:
        """Return the numbers of torch's own layers by name, as text: as they began, or have moved to."""
        found = {}
        for path, layer in self._module.named_modules():
            for name, text in self._at_start.get(path, ["", {}])[1].items():
                if _torch_layer_number(layer, name) is not None:
                    value = moved.get(path, {}).get(name)
                    found[f"{path}.{name}".lstrip(".")] = text if value is None else plain_value_text(value)
        return found

    def state(self, moved: Moved) -> dict[str, Any]:
        """Return what a checkpoint keeps: one text of all layers, so that it has no leaf more for each."""
        return {"layers": json.dumps(self._at_start), "moved": moved}

    def differences(self, saved: dict[str, Any]) -> list[str]:
        """Return with which options the code begins otherwise than when `saved` was taken, by the layers' paths."""
        if "layers" not in saved:
            return []
        before = json.loads(saved["layers"])
        if "moved" not in saved:  # an older version looked into no object
            before = _merge_object_options(self._at_start, before)
        for path, name, value in _iterate_moved_options(saved.get("moved", {})):
            now, then = (layers.get(path, ["", {}])[1] for layers in (self._at_start, before))
            if name in now and (value is None or now[name] == plain_value_text(value)):
                then[name] = now[name]
        return changed_layer_options(before, self._at_start)

    def load(self, saved: dict[str, Any]) -> None:
        """Put back what the loop had moved, but for what the code begins with otherwise: that is an edit, and used."""
        self._moved = {}
        for path, name, value in _iterate_moved_options(saved.get("moved", {})):
            now, then = (
                layers.get(path, ["", {}])[1] for layers in (self._at_start, json.loads(saved["layers"]))
            )
            if value is None or now.get(name) in (then.get(name), plain_value_text(value)):
                self._moved.setdefault(path, {})[name] = value
                if value is not None:
                    # a notebook's cell that is run again begins as the loop has left it
                    now[name] = then[name]
                    setattr(self._module.get_submodule(path), name, value)


def layer_options(module: nn.Module) -> Layers:
    """Return the type and the plain attributes (`p`, `eps`, `stride`, a function) of each part of a module.

    So are those of objects that it holds, one level deep: of one that several layers hold at the first. The mode is left out:
    `train()` and `eval()` move it.
    """
    return {
        path: [_original_layer_class(layer).__name__, options]
        for path, layer, options in _options_by_layer(module)
    }


def changed_layer_options(before: Layers, after: Layers) -> list[str]:
    """Return what differs of two `layer_options`, by the layers' paths."""
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


def _options_by_layer(module: nn.Module) -> Iterator[tuple[str, nn.Module, dict[str, str]]]:
    looked_into: set[int] = set()
    for path, layer in module.named_modules():
        options: dict[str, str] = {}
        for name, value in vars(layer).items():
            if name.startswith("_") or name == "training":
                continue
            if (text := plain_value_text(value)) is not None:
                options[name] = text
            elif id(value) not in looked_into and (held := option_fields(value)):
                looked_into.add(id(value))
                texts = {f"{name}.{field}": plain_value_text(each) for field, each in held.items()}
                options |= {
                    field: text for field, text in texts.items() if text is not None and "._" not in field
                }
        yield path, layer, options


def _torch_layer_number(layer: nn.Module, name: str) -> Any:
    """Return an attribute of a layer of torch's own that is a number, None for any other."""
    value = getattr(layer, name, None)
    is_plain = isinstance(value, bool | int | float)
    return value if is_plain and _original_layer_class(layer).__module__.startswith("torch.nn.") else None


def _original_layer_class(layer: nn.Module) -> type:
    """Return the class of a layer, of one that is divided among processes that which it had before."""
    kind = type(layer)
    return kind.__bases__[1] if kind.__bases__[0].__name__ == "FSDPModule" else kind


def _merge_object_options(layers: Layers, saved: Layers) -> Layers:
    """Return `saved` with what `layers` has of objects that layers hold."""
    within = {
        path: {name: text for name, text in own[1].items() if "." in name} for path, own in layers.items()
    }
    return {path: [kind, within.get(path, {}) | options] for path, (kind, options) in saved.items()}


def _iterate_moved_options(moved: Moved) -> Iterator[tuple[str, str, Any]]:
    return ((path, name, value) for path, names in moved.items() for name, value in names.items())
