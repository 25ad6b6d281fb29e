# SPDX-License-Identifier: Apache-2.0
"""What changed between two states."""

import json
import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from truestep.checkpoints.state_codec import saved_tensor_name
from truestep.core.secret_values import HIDDEN, HIDDEN_VALUE
from truestep.core.state_trees import tree_leaves
from truestep.core.tensor_bytes import bytes_of_contiguous
from truestep.core.text_formatting import plural


@dataclass(frozen=True)
class StateChange:
    """A leaf that is in one state only, or differs: in kind, in shape, or in value.

    `differing_bytes` counts those of a tensor, all of them where the shape or the dtype differs; `largest_difference` is
    between two numbers of a tensor, None where there is none or it is NaN.
    """

    name: str
    kind: str
    detail: str
    differing_bytes: int = 0
    largest_difference: float | None = None

    def __str__(self) -> str:
        return f"{self.kind:9} {self.name}  {self.detail}"

    def to_dict(self) -> dict[str, Any]:
        """Return the change as JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class StateChanges:
    """What differs between two states, and how much there was to compare."""

    changes: list[StateChange]
    num_tensors: int
    num_bytes: int
    """Of all tensors; of one whose size differs, the larger size."""

    @property
    def differing_bytes(self) -> int:
        """The bytes of tensors that differ."""
        return sum(change.differing_bytes for change in self.changes)

    def __str__(self) -> str:
        verdict = f"{self.differing_bytes:,} of {self.num_bytes:,} bytes differ"
        if not self.changes:
            return f"{verdict}: {plural(self.num_tensors, 'tensor')} and every other value are equal"
        tensors = sum(change.differing_bytes > 0 for change in self.changes)
        others = len(self.changes) - tensors
        also = f", and {others} other value{'s' if others > 1 else ''}" if others else ""
        return f"{verdict}: {tensors} of {self.num_tensors} tensors{also}"

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as JSON values."""
        return {
            "equal": not self.changes,
            "differing_bytes": self.differing_bytes,
            "num_bytes": self.num_bytes,
            "num_tensors": self.num_tensors,
            "changes": [change.to_dict() for change in self.changes],
        }


_OF_THE_RUN = ("logbook/mark/", "logbook/elapsed_seconds", "environment/went_on", "environment/arguments")
"""What no resume promises: the time that a run took and the file it writes times to, whether it was resumed, its own words."""


def compare_states(before: Any, after: Any) -> StateChanges:
    """Return every leaf that differs between two states, bit for bit, in the order of the first.

    Not what the clock gave, whether a run was resumed, and hashes of secrets, whose salt is each run's own.
    """
    old, new = _comparable_leaves(before), _comparable_leaves(after)
    names = [*old, *(name for name in new if name not in old)]
    changes = [change for name in names if (change := _compare_named_leaf(name, old, new))]
    pairs = [(old.get(name), new.get(name)) for name in names]
    sizes = [max(map(_num_bytes, pair)) for pair in pairs if any(isinstance(each, Tensor) for each in pair)]
    return StateChanges(changes, num_tensors=len(sizes), num_bytes=sum(sizes))


def _comparable_leaves(state: Any) -> dict[str, Any]:
    named = ((saved_tensor_name(path), leaf) for path, leaf in tree_leaves(state))
    return {
        name: HIDDEN_VALUE.sub(HIDDEN, leaf) if isinstance(leaf, str) else leaf
        for name, leaf in named
        if not name.startswith(_OF_THE_RUN)
    }


def _compare_named_leaf(name: str, old: dict[str, Any], new: dict[str, Any]) -> StateChange | None:
    if name not in new:
        return StateChange(name, "removed", _describe_leaf(old[name]), _num_bytes(old[name]))
    if name not in old:
        return StateChange(name, "added", _describe_leaf(new[name]), _num_bytes(new[name]))
    return _compare_leaves(name, old[name], new[name])


def _num_bytes(leaf: Any) -> int:
    return leaf.nbytes if isinstance(leaf, Tensor) else 0


def _compare_leaves(name: str, old: Any, new: Any) -> StateChange | None:
    if isinstance(old, Tensor) and isinstance(new, Tensor):
        return _compare_tensors(name, old, new)
    if type(old) is type(new) and (old == new or (old != old and new != new)):  # noqa: PLR0124 -- NaN is NaN
        return None
    detail = _json_text_changes(old, new) or f"{_describe_leaf(old)} -> {_describe_leaf(new)}"
    return StateChange(name, "changed", detail, max(map(_num_bytes, (old, new))))


def _json_text_changes(old: Any, new: Any) -> str:
    """Return what differs within two texts of JSON, as a module's layers are kept; nothing for anything else."""
    if not (isinstance(old, str) and isinstance(new, str) and old[:1] == new[:1] == "{"):
        return ""
    try:
        before, after = _named_leaves(json.loads(old)), _named_leaves(json.loads(new))
    except ValueError:
        return ""
    names = [name for name in before | after if before.get(name, _NOTHING) != after.get(name, _NOTHING)]
    said = [
        f"{name} {before.get(name, _NOTHING)} -> {after.get(name, _NOTHING)}" for name in names[:_MOST_WITHIN]
    ]
    return "; ".join(said + [f"{len(names) - _MOST_WITHIN} more"] * (len(names) > _MOST_WITHIN))


def _named_leaves(tree: Any) -> dict[str, Any]:
    return {saved_tensor_name(path): leaf for path, leaf in tree_leaves(tree)}


_NOTHING, _MOST_WITHIN = "nothing", 4


def _compare_tensors(name: str, old: Tensor, new: Tensor) -> StateChange | None:
    if (old.dtype, old.shape) != (new.dtype, new.shape):
        return StateChange(
            name, "reshaped", f"{_describe_leaf(old)} -> {_describe_leaf(new)}", max(old.nbytes, new.nbytes)
        )
    # By bits: what is promised of a resumed run are these, and a NaN is unequal to itself.
    differing = _bytes_per_element(old) != _bytes_per_element(new)
    elements = int(differing.any(dim=1).sum())
    if elements == 0:
        return None
    detail, largest = f"{elements} of {old.numel()} elements", None
    if old.dtype.is_floating_point or old.dtype.is_complex:
        # complex128 holds every float and complex dtype exactly, float8 too, in which torch can't subtract
        gap = (old.to(torch.complex128) - new.to(torch.complex128)).abs().max().item()
        detail += f", largest difference {gap:.3g}"
        largest = gap if math.isfinite(gap) else None
    return StateChange(name, "changed", detail, int(differing.sum()), largest)


def _bytes_per_element(tensor: Tensor) -> Tensor:
    """Return the bytes of a tensor, a row an element: so NaN equals itself, and -0.0 is not 0.0."""
    return bytes_of_contiguous(tensor.contiguous()).reshape(-1, tensor.element_size())


def _describe_leaf(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    return repr(value)
