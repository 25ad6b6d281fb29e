# SPDX-License-Identifier: Apache-2.0
"""Where a loop that is being run stands: what its counters hold, and what a library would say of its progress."""

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from truestep.doctor.source.names import dotted_name


@dataclass
class LoopState:
    """What is known only while a loop is run."""

    window: int  # micro-batches of an update, where the program does not show how many
    num_batches: int = 0
    counters: dict[str, Any] = field(default_factory=dict)  # by the names of the variables
    progress: dict[str, Any] = field(
        default_factory=dict
    )  # by the ends of attributes: "trainer.is_last_batch"
    # the variables that got a value before the loop, and what tells it: most are never asked for
    given_before: set[str] = field(default_factory=set)
    before: Callable[[str], list[Any]] = lambda _: []
    looked_up: set[str] = field(default_factory=set)  # all variables that anything asked for
    asked: set[str] = field(default_factory=set)  # which of these tests asked for
    was_asked: bool = False  # for any of these

    def count(self, slot: str, values: list[Any]) -> None:
        """Give a variable its value; none where it can't be seen."""
        self.given_before.discard(slot)
        self.counters.pop(slot, None)
        self.counters.update((slot, value) for value in values)

    def known(self, slot: str, node: ast.expr) -> list[Any]:
        """Return the value of a variable, or nothing where the loop does not decide it."""
        self.looked_up.add(slot)
        if slot in self.given_before:
            self.given_before.discard(slot)
            self.counters.update((slot, value) for value in self.before(slot))
        found = [(slot, self.counters[slot])] if slot in self.counters else []
        if not found and self.progress and isinstance(node, ast.Attribute):
            name = dotted_name(node) or node.attr
            ends = (name, ".".join(name.split(".")[-2:]), node.attr)
            found = [(each, self.progress[each]) for each in ends if each in self.progress][:1]
        if found:
            self.was_asked = True
            self.asked.add(found[0][0])
        return [value for _, value in found]
