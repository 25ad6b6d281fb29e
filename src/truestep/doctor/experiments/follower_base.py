# SPDX-License-Identifier: Apache-2.0
"""What all that follows the operations of a step in a child has in common."""

import sys
import weakref
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Any, Generic, TypeVar

from torch import Tensor
from torch.overrides import TorchFunctionMode

from truestep.core.user_frames import innermost_user_frame
from truestep.doctor.experiments.outcome import ChildOutcome

Note = TypeVar("Note")


class StepFollower(TorchFunctionMode):
    """Within it operations are followed; it rests while gradients are computed, and what a backward computes anew is not seen.

    Attributes:
        found: what the relations ask for, by its name.
    """

    _rests = False

    def __init__(self, **found: Any) -> None:
        super().__init__()
        self.found = found

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        return func(*args, **given) if self._rests else self.followed(func, args, given)

    def followed(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Call an operation, and return its result."""
        raise NotImplementedError

    def note(self, kind: str, line: str) -> None:
        """Note a line once."""
        if line not in self.found[kind]:
            self.found[kind].append(line)

    def goes_backward(self, roots: Sequence[Any]) -> None:
        """Follow nothing while the gradients of these roots are computed."""
        del roots
        self._rests = True

    def went_backward(self) -> None:
        """Follow operations again."""
        self._rests = False

    def tell(self, seen: ChildOutcome) -> None:
        """Tell of all that was found."""
        seen.followed.update(self.found)


class TensorNotes(Generic[Note]):
    """What is known of tensors, as long as they live."""

    def __init__(self) -> None:
        self._notes: dict[int, tuple[weakref.ref[Tensor], Note]] = {}

    def __setitem__(self, tensor: Tensor, note: Note) -> None:
        self._notes[id(tensor)] = weakref.ref(tensor), note

    def get(self, tensor: Tensor) -> Note | None:
        """Return what was noted of a tensor, None where nothing was."""
        known = self._notes.get(id(tensor))
        return known[1] if known is not None and known[0]() is tensor else None


def users_frame() -> FrameType | None:
    """Return the frame of the user's that an operation is called in."""
    return innermost_user_frame(sys._getframe(1))


def frame_line_text(frame: FrameType) -> str:
    """Return the line that a frame is at, as a place's text."""
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
