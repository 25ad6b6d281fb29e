# SPDX-License-Identifier: Apache-2.0
"""Plain attributes that a training changes, `self.best` say: they are in no state_dict, so they are kept beside it."""

import sys
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from truestep.core.errors import CheckpointError
from truestep.core.state_trees import tree_leaves
from truestep.core.text_formatting import a_type
from truestep.core.user_frames import is_library_file
from truestep.run.user_state import check_run_state_value, run_state_change_mark

_KINDS = (bool, int, float, str, Tensor, np.ndarray, np.generic, list, tuple, dict, set, deque, type(None))
_CLOCKS = (time.time, time.monotonic, time.perf_counter, time.process_time)
_MOST_ITEMS, _MOST_BYTES = 50_000, 1 << 26
_IF_MISSING = "?"  # behind the name of a reading of a clock: this process has its own, unless the hook for it is left out


class PlainAttributes:
    """Those of the modules and objects that are given, of what these hold, and buffers that are not persistent.

    Only where the class is the user's own: a library may keep a cache for each, and both belong together. Of `stateful` objects, of
    whichever class, too. Of a module that an object holds, an average of the weights say, what its `state_dict` has.

    What a module saves by itself, by buffers or by hooks of its own, comes back twice, to the same values.
    """

    def __init__(
        self,
        given: dict[str, Any],
        of_library: Any = None,
        stateful: dict[str, Any] | None = None,
    ) -> None:
        self._of_library = {*vars(nn.Module()), *vars(of_library or nn.Module())}
        self._holders: dict[str, Any] = dict(stateful or {})
        modules = (each for each in given.values() if isinstance(each, nn.Module))
        self._trained = {id(weight) for module in modules for weight in module.parameters()}
        for root, each in given.items():
            inner = each.named_modules() if isinstance(each, nn.Module) else [("", each)]
            held = {f"{root}.{name}".rstrip("."): one for name, one in inner if _is_user_class(one)}
            for path, holder in held.items():
                parts = {
                    f"{path}.{name}": part for name, part in vars(holder).items() if _is_user_class(part)
                }
                objects = {name: part for name, part in parts.items() if not isinstance(part, nn.Module)}
                self._holders |= {path: holder, **objects}
        self._began = [clock() for clock in _CLOCKS]
        self._made = {path: _comparison_value(value) for path, value in self._iterate_attributes()}
        self._told = False

    def _iterate_attributes(self) -> Iterator[tuple[str, Any]]:
        for path, holder in self._holders.items():
            lost = getattr(holder, "_non_persistent_buffers_set", ())
            buffers = {name: value for name, value in getattr(holder, "_buffers", {}).items() if name in lost}
            for name, value in {**vars(holder), **buffers}.items():
                if self._is_own_module(holder, value) or (
                    name not in self._of_library and isinstance(value, _KINDS)
                ):
                    yield f"{path}.{name}", value

    def _is_own_module(self, holder: Any, value: Any) -> bool:
        """Whether a module is held by an object that saves none, and is no part of what is trained."""
        return (
            isinstance(value, nn.Module)
            and not isinstance(holder, nn.Module)
            and not any(id(weight) in self._trained for weight in value.parameters())
        )

    def changed(self, instead: str) -> dict[str, Any]:
        """Return what has changed since this was made; say once what can't be kept, and what to write `instead`."""
        found, lost = {}, []
        for path, value in self._iterate_attributes():
            if path in self._made and self._made[path] == _comparison_value(value):
                continue
            content = _expand_containers(value)
            if any(isinstance(leaf, Tensor) and leaf.requires_grad for _, leaf in tree_leaves([content])):
                continue  # weights, and what belongs to the batch
            try:
                check_run_state_value(content, path)
                found[f"{path}{_IF_MISSING if self._is_time(value) else ''}"] = content
            except CheckpointError:
                lost.append(f"{path}, {a_type(value)},")
        if lost and not self._told:
            self._told = True
            sys.stderr.write(
                f"truestep: {lost[0]} has changed in training, and holds what no checkpoint keeps, so a killed run would go on "
                f"with what it is made with{f' (as {len(lost) - 1} more)' if lost[1:] else ''}. Write {instead}\n"
            )
        return found

    def _is_time(self, value: Any) -> bool:
        now = [clock() for clock in _CLOCKS]
        return type(value) is float and any(a <= value <= b for a, b in zip(self._began, now, strict=True))

    def put_back(self, kept: dict[str, Any]) -> None:
        """Set what was kept, within the containers and tensors that are there: something else may hold them, too."""
        for path, value in kept.items():
            holder, name = self._holders.get(path.rpartition(".")[0]), path.rpartition(".")[2]
            is_there = hasattr(holder, name.rstrip(_IF_MISSING))
            if holder is None or (name.endswith(_IF_MISSING) and is_there):
                continue
            name = name.rstrip(_IF_MISSING)
            now = getattr(holder, name, None)
            if isinstance(now, nn.Module):
                now.load_state_dict(value)
            elif (
                isinstance(now, Tensor)
                and isinstance(value, Tensor)
                and _shape_and_dtype(now) == _shape_and_dtype(value)
            ):
                with torch.no_grad():
                    now.copy_(value)
            elif isinstance(now, dict | set | list | deque) and isinstance(value, list | dict):
                now.clear()
                now.extend(value) if isinstance(now, list | deque) else now.update(value)
            else:
                setattr(holder, name, value)


def _shape_and_dtype(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.dtype


def _expand_containers(value: Any) -> Any:
    kinds: dict[type, Any] = {set: list, deque: list, dict: dict, nn.Module: nn.Module.state_dict}
    return next((plain(value) for kind, plain in kinds.items() if isinstance(value, kind)), value)


def _comparison_value(value: Any) -> Any:
    """Return what is equal as long as a value stays; a data set that a module holds is not gone through at each save."""
    if isinstance(value, np.ndarray) and value.nbytes > _MOST_BYTES:
        return id(value), value.shape
    if isinstance(value, list | tuple | dict | set | deque) and len(value) > _MOST_ITEMS:
        return id(value), len(value)
    return run_state_change_mark(_expand_containers(value))


def _is_user_class(value: Any) -> bool:
    """Whether its class stands in the user's code; a metric of torchmetrics is the user's, too: it saves nothing by default."""
    name = type(value).__module__
    file = getattr(sys.modules.get(name), "__file__", None)
    is_own = (
        name == "__main__" or name.startswith("torchmetrics.") or bool(file and not is_library_file(file))
    )
    return is_own and hasattr(value, "__dict__") and not isinstance(value, type)
