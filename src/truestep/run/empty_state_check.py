# SPDX-License-Identifier: Apache-2.0
"""Tracked modules that give no state at all: what they hold changes, and no checkpoint has it."""

from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from truestep.core.text_formatting import keyword_text, variable_text
from truestep.run.state import RunState


class EmptyStateDictWatcher:
    """Compares what such modules hold as a loop begins, and at the end of updates and epochs."""

    def __init__(self, run: RunState) -> None:
        self._run = run
        self._first: dict[str, dict[str, object]] = {}

    def take_note(self) -> None:
        """A loop begins: note what is held by tracked modules whose state is empty."""
        for name, tracked in self._run.tracked.named():
            if isinstance(tracked, nn.Module) and not tracked.state_dict():
                self._first[name] = dict(_tensors_outside_state(tracked))

    def look(self) -> None:
        """Name what has changed and is in no state, once for each module."""
        objects = dict(self._run.tracked.named())
        for name, before in [*self._first.items()]:
            now = dict(_tensors_outside_state(objects[name]))
            changed = [each for each in now if not _is_unchanged(before.get(each), now[each])]
            if changed:
                del self._first[name]
                text = _EMPTY.format(
                    given=keyword_text(name),
                    name=variable_text(name, "metric"),
                    type=type(objects[name]).__name__,
                    held=", ".join(changed),
                )
                self._run.screen.say_once(text, key=f"empty state {name}")


def _tensors_outside_state(module: nn.Module) -> Iterator[tuple[str, object]]:
    """Yield tensors that a module and its parts hold outside of their state, and how long their lists of tensors are."""
    for path, part in module.named_modules():
        # a metric keeps a tensor as an attribute, or a list that it appends to; a buffer may be left out of the state
        attributes: dict[str, Any] = vars(part) | dict(part.named_buffers(recurse=False))
        for key, value in attributes.items():
            name = f"{path}.{key}".lstrip(".")
            if isinstance(value, Tensor):
                yield name, (value, value._version)
            elif isinstance(value, list) and all(isinstance(each, Tensor) for each in value):
                yield name, len(value)


def _is_unchanged(before: object, now: object) -> bool:
    """Tell whether it is the same tensor, not written to since, or a list as long."""
    if isinstance(before, tuple) and isinstance(now, tuple):
        return before[0] is now[0] and before[1] == now[1]
    return before == now if isinstance(before, int) and isinstance(now, int) else False


_EMPTY = (
    "run.track({given}) keeps nothing: the state_dict() of this {type} is empty, and what it holds has changed ({held}). "
    "A run that goes on would begin with another one. Give it a state before run.track: {name}.persistent(True) of a "
    "metric of torchmetrics, register_buffer(..., persistent=True) of a module of your own"
)
