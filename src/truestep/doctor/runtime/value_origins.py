# SPDX-License-Identifier: Apache-2.0
"""Where values were made: by which operation, at which line of the user's, in which layer, and of which values."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from truestep.doctor.finding import Place

if TYPE_CHECKING:
    from torch import Tensor, nn

MAX_DEPTH = 64  # operations that are remembered behind a value: an accumulator would hold all its past
MAX_ENTRIES = 4096  # values; then those that are gone are forgotten
# what passes a value's numbers on as they are, all of them or a part
PASSES = frozenset(
    {
        *(
            "T",
            "mT",
            "H",
            "mH",
            "__getitem__",
            "chunk",
            "data",
            "detach",
            "expand",
            "expand_as",
            "flatten",
            "identity",
        ),
        *("movedim", "narrow", "permute", "ravel", "requires_grad", "reshape", "select", "split", "squeeze"),
        *("swapaxes", "t", "transpose", "unbind", "unflatten", "unsqueeze", "view", "view_as"),
        *(
            "bfloat16",
            "clone",
            "contiguous",
            "cpu",
            "cuda",
            "double",
            "float",
            "half",
            "to",
            "type",
            "type_as",
        ),
    }
)


@dataclass(frozen=True, slots=True, eq=False)
class WatchedOrigin:
    """One operation of a step, and what it was given."""

    operation: str  # in torch's word: "softmax"
    path: str
    line: int
    layer: nn.Module | None  # the innermost module at work; None in the user's own code
    before: tuple[WatchedOrigin, ...] = ()
    depth: int = 0
    cuts: bool = False  # it was given something that carries a graph, and its result carries none
    # the optimizers whose weights it was made of, but for frozen ones, by identity
    weights_of: frozenset[int] = frozenset()
    is_learned: bool = False  # made of what a model gave, in this step or before

    @property
    def place(self) -> Place:
        """The line of the user's own code that made it."""
        return Place(self.path, self.line)

    def past_changes_of_shape(self) -> WatchedOrigin:
        """Return the operation that computed the numbers, where this one only passed them on."""
        found = self
        while found.operation in PASSES and len(found.before) == 1:
            found = found.before[0]
        return found

    def ancestors(self) -> Iterator[WatchedOrigin]:
        """Yield it and all that it was made of, the nearest first."""
        waiting, seen = [self], {id(self)}
        while waiting:
            current = waiting.pop(0)
            yield current
            for each in current.before:
                if id(each) not in seen:
                    seen.add(id(each))
                    waiting.append(each)


class WatchedOrigins:
    """The origins of the values of this step; it keeps no value alive."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Tensor], WatchedOrigin]] = {}
        self._learned: dict[
            int, weakref.ref[Tensor]
        ] = {}  # what models gave in earlier steps: labels of one's own
        self.cuts: list[WatchedOrigin] = []  # where graphs ended in this step
        self.reads: list[WatchedOrigin] = []  # where a value with a graph was read, as a number without one

    def of(self, value: Tensor) -> WatchedOrigin | None:
        """Return where a value was made, if that was in this step and while the watch looked."""
        found = self._known.get(id(value))
        return found[1] if found is not None and found[0]() is value else None

    def nearest(self, value: Tensor, *operations: str) -> Place | None:
        """Return the line of the nearest of some operations that a value was made of."""
        origin = self.of(value)
        steps = origin.ancestors() if origin is not None else ()
        return next((each.place for each in steps if each.operation in operations), None)

    def note(self, value: Tensor, origin: WatchedOrigin) -> None:
        """Remember where a value was made, or changed in place."""
        if len(self._known) >= MAX_ENTRIES:
            self._known = {key: pair for key, pair in self._known.items() if pair[0]() is not None}
            if len(self._known) >= MAX_ENTRIES // 2:
                self._known.clear()
        self._known[id(value)] = weakref.ref(value), origin
        if origin.cuts and len(self.cuts) < MAX_DEPTH:
            self.cuts.append(origin)

    def before(self, values: list[Tensor]) -> list[WatchedOrigin]:
        """Return the origins of the values that an operation is given, each once."""
        found = {id(origin): origin for each in values if (origin := self.of(each)) is not None}
        return list(found.values())

    def is_learned(self, value: Tensor) -> bool:
        """Tell whether a value was made of what a model gave, also in an earlier step that was looked at."""
        if (origin := self.of(value)) is not None:
            return origin.is_learned
        found = self._learned.get(id(value))
        return found is not None and found() is value

    def forget(self) -> None:
        """A step is over."""
        kept = ((key, value) for key, (value, origin) in self._known.items() if origin.is_learned)
        both = [*self._learned.items(), *kept]
        self._learned = {key: value for key, value in both if value() is not None}
        self._known.clear()
        self.cuts.clear()
        self.reads.clear()
