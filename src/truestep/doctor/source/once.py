# SPDX-License-Identifier: Apache-2.0
"""Goes from node to node, to each once, by whichever way it is met first.

A method that calls itself at a dozen places hands its parameters to itself as often: there are a dozen times as many
ways with each step back, and always the same few nodes.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

from truestep.doctor.source.resolving import MAX_DEPTH

Node = TypeVar("Node", bound=Hashable)


def each_once(
    start: Iterable[Node], behind: Callable[[Node], Iterable[Node]], most_steps: int = MAX_DEPTH
) -> Iterator[Node]:
    """Yield some nodes and what lies behind them, nearest first, as far as so many steps lead."""
    seen: set[Node] = set()
    nearest = list(start)
    for _ in range(most_steps + 1):
        further: list[Node] = []
        for each in nearest:
            if each not in seen:
                seen.add(each)
                yield each
                further += behind(each)
        nearest = further
