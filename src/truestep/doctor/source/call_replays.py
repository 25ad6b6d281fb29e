# SPDX-License-Identifier: Apache-2.0
"""What calls gave in one world of an entry, given again in the next.

Most of a program does not ask what a world decides: a call whose tests have the same answers does the same, so its
events are taken over, and only what leads to an answer that is another one is followed anew.
"""

from dataclasses import dataclass, replace

from truestep.doctor.source.events import Path, TraceEvent, TraceFrame
from truestep.doctor.source.frames import CallFrame, World


@dataclass(eq=False, slots=True)
class FollowedCall:
    """What one call gave."""

    path: Path  # that led into it
    depth: int  # how many functions were being run
    asked: frozenset[str]  # the variables that its tests asked for
    world: World  # the values that were chosen for these
    events: list[TraceEvent]
    num_calls: int
    staying: TraceFrame | None  # the arm that goes on after it

    def holds_in(self, world: World) -> bool:
        """Tell whether all that was asked has the same answers in a world."""
        return all(self.world.get(name, self) is world[name] for name in world if name in self.asked)

    def along(self, path: Path) -> "FollowedCall":
        """Return the same call, reached on another way."""
        if self.path == path:
            return self
        start, paths = len(self.path), dict[int, Path]()
        for event in self.events:
            if id(event.path) not in paths:
                paths[id(event.path)] = (*path, *event.path[start:])
        events = [replace(event, path=paths[id(event.path)]) for event in self.events]
        return replace(self, path=path, events=events)


class CallReplays:
    """Keeps what the calls of one entry gave."""

    def __init__(self) -> None:
        self._followed: dict[CallFrame, list[FollowedCall]] = {}

    def keep(self, call: CallFrame, followed: FollowedCall) -> None:
        """Note what a call gave."""
        self._followed.setdefault(call, []).append(followed)

    def find(self, call: CallFrame, path: Path, depth: int, world: World) -> FollowedCall | None:
        """Return what a call gives in a world, if it was followed where all that it asks has the same answers."""
        same = [each for each in self._followed.get(call, ()) if each.depth == depth and each.holds_in(world)]
        if not same:
            return None
        found = next((each for each in same if each.path == path), None)
        if found is None:
            found = same[0].along(path)
            self.keep(call, found)
        return found
