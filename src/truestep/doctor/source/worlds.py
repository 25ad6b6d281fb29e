# SPDX-License-Identifier: Apache-2.0
"""The choices of values for the tests that nothing decides: each choice is a world."""

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from truestep.doctor.source.events import Trace, TraceEvent
from truestep.doctor.source.frames import OTHER

MAX_WORLDS = 8


@dataclass
class Guards:
    """The tests of one entry that nothing decided, by the variables they ask."""

    values: dict[str, list[Any]] = field(default_factory=dict)
    num_uses: dict[str, tuple[int, int]] = field(default_factory=dict)  # where an update is guarded, and all

    def add(self, name: str, values: Iterable[Any], guards_update: bool) -> None:
        """Note a test of a variable, and the values that tell its ways apart."""
        known = self.values.setdefault(name, [])
        known += [each for each in values if not any(each is old or _same(each, old) for old in known)]
        of_updates, uses = self.num_uses.get(name, (0, 0))
        self.num_uses[name] = of_updates + guards_update, uses + 1

    def worlds(self) -> list[dict[str, Any]]:
        """Return the choices of values, while there is room: first what decides on updates, then what is asked most."""
        chosen: dict[str, list[Any]] = {}
        room = MAX_WORLDS
        for name in sorted(self.values, key=self.num_uses.__getitem__, reverse=True):
            if len(self.values[name]) <= room and len(self.values[name]) > 1:
                chosen[name] = self.values[name]
                room //= len(self.values[name])
        return [dict(zip(chosen, values, strict=True)) for values in product(*chosen.values())]


def _same(first: Any, second: Any) -> bool:
    return type(first) is type(second) and bool(first == second)


def alike(first: Trace, second: Trace) -> bool:
    """Tell whether the same happens on the same ways in two traces."""
    if len(first.events) != len(second.events):
        return False
    return all(
        one is other or _same_event(one, other)
        for one, other in zip(first.events, second.events, strict=True)
    )


def _same_event(one: TraceEvent, other: TraceEvent) -> bool:
    same = one.kind == other.kind and one.node is other.node and one.subject == other.subject
    return same and one.path == other.path


def values_around(op: ast.cmpop, values: list[Any]) -> list[Any]:
    """Return values of a variable on all sides of what it is compared with."""
    numbers = [each for each in values if isinstance(each, int | float) and not isinstance(each, bool)]
    if isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE) and len(numbers) == len(values) == 1:
        return [numbers[0] - 1, numbers[0], numbers[0] + 1]
    return [*values, OTHER]
