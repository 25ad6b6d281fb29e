# SPDX-License-Identifier: Apache-2.0
"""Goes from node to node, to each once, and asks a question about each once.

A method that calls itself at a dozen places hands its parameters to itself as often: there are a dozen times as many
ways with each step back, and always the same few nodes.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import wraps
from typing import Any, TypeVar, cast

from truestep.doctor.source.classes import MAX_DEPTH

WITHOUT_END = math.inf  # instead of a number of steps
Node = TypeVar("Node", bound=Hashable)
Question = TypeVar("Question", bound=Callable[..., Any])


def walk_each_once(
    start: Iterable[Node], behind: Callable[[Node], Iterable[Node]], most_steps: float = MAX_DEPTH
) -> Iterator[Node]:
    """Yield some nodes and what lies behind them, nearest first, as far as so many steps lead."""
    seen: set[Node] = set()
    nearest = list(start)
    while nearest and most_steps >= 0:
        further: list[Node] = []
        for each in nearest:
            if each not in seen:
                seen.add(each)
                yield each
                further += behind(each)
        nearest, most_steps = further, most_steps - 1


def answered_once(question: Question) -> Question:
    """Remember the answers to a question that never leads back to itself."""

    @wraps(question)
    def ask(where: Any, *what: object) -> Any:
        known, key = where.remembered, (question, where, *what)
        if key not in known:
            known[key] = question(where, *what)
        return known[key]

    return cast("Question", ask)


def asked_once(at_cycle: object) -> Callable[[Question], Question]:
    """Remember the answers to a question about nodes, asked as `(where, node, depth=0, *further)`.

    One that comes back to itself, or leads further than `MAX_DEPTH` steps, is answered `at_cycle`.
    """

    def decorate(question: Question) -> Question:
        @wraps(question)
        def ask(where: Any, node: object, depth: int = 0, *further: object) -> Any:
            known, key = where.remembered, (question, node, *further)
            if key in known:
                return known[key]
            if depth > MAX_DEPTH:
                return at_cycle
            known[key] = at_cycle
            known[key] = question(where, node, depth, *further)
            return known[key]

        return cast("Question", ask)

    return decorate
