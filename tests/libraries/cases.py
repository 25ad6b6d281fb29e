# SPDX-License-Identifier: Apache-2.0
"""Every combination of a source and the ways to read it that exists, and those of a slice with the kills drawn for each."""

import random
from collections import Counter
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from libraries.sources import SOURCES

WORKERS, RANKS = (0, 2), (1, 2, 3)
KILLS_OF_SOURCE = 60
STEPS = 30  # of a training
MOST_KILLS = 10  # of a training: a start behind each must find something to do


class Case(NamedTuple):
    """A source, and how it is read."""

    source: str
    order: str
    per_rank: bool
    workers: int
    ranks: int

    def __str__(self) -> str:
        how = "per rank" if self.per_rank else "whole"
        return f"{self.source}, {self.order}, {how}, {self.workers} workers, {self.ranks} ranks"


def all_cases() -> list[Case]:
    """Return every combination that exists: `per_rank` is refused for what is entered by number, which is held once."""
    found = []
    for name, source in SOURCES.items():
        by_rank = (False, True) if source.by_rank else (False,)
        found += [Case(name, *how) for how in product(source.orders, by_rank, WORKERS, RANKS)]
        if not source.by_rank:
            found.append(Case(name, source.orders[0], True, 0, 2))
    return found


def drawn(number: int) -> Iterator[tuple[Case, random.Random, list[int]]]:
    """Yield all combinations in the order of a slice, each with its dice and the steps at which it is killed."""
    cases = all_cases()
    of_source = Counter(case.source for case in cases)
    dice = random.Random(number)
    dice.shuffle(cases)
    for case in cases:
        kills = min(MOST_KILLS, -(-KILLS_OF_SOURCE // of_source[case.source]))
        own = random.Random(f"{number} {case}")
        yield case, own, sorted(own.sample(range(1, STEPS), kills))
