# SPDX-License-Identifier: Apache-2.0
"""What a user's own clip and optimizer keep in attributes that no checkpoint has."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TypeGuard

from torch.optim import Optimizer

from truestep.engine.clipping import Clip
from truestep.engine.object_description import describe_value, own_fields, plain_value_text

# The last two are set for each step, where the device decides whether it is taken.
_TORCHS = ("state", "param_groups", "defaults", "grad_scale", "found_inf")


class StatefulClip(Protocol):
    """A clip of the user's own that says what a checkpoint is to keep of it."""

    def state_dict(self) -> dict[str, Any]:
        """Return it: tensors and JSON values."""

    def load_state_dict(self, state: dict[str, Any]) -> object:
        """Take it back."""


def stateful_clip(clip: Clip | None) -> StatefulClip | None:
    """Return what of a clip has a state that is saved with its learner: itself, or the object that is its function."""
    return next(filter(_is_stateful, (clip, getattr(clip, "function", None))), None)


def _is_stateful(clip: object) -> TypeGuard[StatefulClip]:
    return hasattr(clip, "state_dict") and hasattr(clip, "load_state_dict")


class UnsavedFields:
    """The fields of a learner's clip and optimizers as they were made, to tell which have moved: they are made anew later."""

    def __init__(self, clip: Clip | None, optimizers: Sequence[Optimizer]) -> None:
        self._clip, self._optimizers = clip, optimizers
        self._as_made = dict(self._described_fields())

    def moved(self) -> list[str]:
        """Return the names of those that are others by now."""
        return [name for name, text in self._described_fields() if self._as_made.get(name) != text]

    def _described_fields(self) -> Iterator[tuple[str, str]]:
        if self._clip is not None and stateful_clip(self._clip) is None:
            yield "clip", describe_value(self._clip)
        for number, optimizer in enumerate(self._optimizers):
            if type(optimizer).state_dict is Optimizer.state_dict:  # one of its own knows best
                for name, value in own_fields(optimizer).items():
                    text = plain_value_text(value)
                    is_kept = callable(value) or name.startswith("_") or name in _TORCHS
                    if text is not None and not is_kept:
                        yield f"{type(optimizer).__name__}.{name}" + (f"[{number}]" if number else ""), text
