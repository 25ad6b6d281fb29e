# SPDX-License-Identifier: Apache-2.0
"""What changed between two states."""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from truestep.checkpoints.tree import tensor_name


@dataclass(frozen=True)
class Change:
    """A leaf that is in one state only, or differs: in kind, in shape, or in value."""

    name: str
    kind: str
    detail: str

    def __str__(self) -> str:
        return f"{self.kind:9} {self.name}  {self.detail}"

    def to_dict(self) -> dict[str, str]:
        """Return the change as JSON values."""
        return asdict(self)


def changes(before: Any, after: Any) -> list[Change]:
    """Return every leaf that differs between two states, bit for bit, in the order of the first."""
    old, new = dict(_leaves(before, ())), dict(_leaves(after, ()))
    found = []
    for name in [*old, *(name for name in new if name not in old)]:
        if name not in new:
            found.append(Change(name, "removed", _show(old[name])))
        elif name not in old:
            found.append(Change(name, "added", _show(new[name])))
        elif change := _changed(name, old[name], new[name]):
            found.append(change)
    return found


def _leaves(value: Any, path: tuple[str | int, ...]) -> list[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        return [leaf for key, item in value.items() for leaf in _leaves(item, (*path, key))]
    if isinstance(value, list | tuple) and value:
        return [leaf for index, item in enumerate(value) for leaf in _leaves(item, (*path, index))]
    return [(tensor_name(path), value)]


def _changed(name: str, old: Any, new: Any) -> Change | None:
    if isinstance(old, Tensor) and isinstance(new, Tensor):
        return _changed_tensor(name, old, new)
    if type(old) is type(new) and (old == new or (old != old and new != new)):  # noqa: PLR0124 -- NaN is NaN
        return None
    return Change(name, "changed", f"{_show(old)} -> {_show(new)}")


def _changed_tensor(name: str, old: Tensor, new: Tensor) -> Change | None:
    if (old.dtype, old.shape) != (new.dtype, new.shape):
        return Change(name, "reshaped", f"{_show(old)} -> {_show(new)}")
    differing = _bits(old) != _bits(new)
    count = int(differing.any(dim=1).sum())
    if count == 0:
        return None
    detail = f"{count} of {old.numel()} elements"
    if old.dtype.is_floating_point or old.dtype.is_complex:
        gap = (old.to(torch.complex128) - new.to(torch.complex128)).abs().max()
        detail += f", largest difference {gap.item():.3g}"
    return Change(name, "changed", detail)


def _bits(tensor: Tensor) -> Tensor:
    """Return the bytes of a tensor, a row an element: so NaN equals itself, and -0.0 is not 0.0."""
    return tensor.contiguous().reshape(-1, 1).view(torch.uint8)


def _show(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    return repr(value)
