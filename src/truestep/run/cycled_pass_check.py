# SPDX-License-Identifier: Apache-2.0
"""A pass whose batches `itertools.cycle` keeps and gives again: refused, since a run that goes on has only those left to cycle."""

import gc
import itertools
from collections.abc import Generator
from typing import Any

from truestep.core.errors import OptionError

# what gives on what it is given, and the tuples in which these hold it
_GIVES_ON = (zip, enumerate, map, filter, tuple, itertools.chain, itertools.islice, itertools.zip_longest)
_MOST_BETWEEN = 5


def check_uncycled_batches(batches: Generator[Any, None, str]) -> Generator[Any, None, str]:
    """Return the batches of a pass; as the first is asked for it is seen whether they are kept to be given again."""
    itself: list[Generator[Any, None, str]] = []
    itself.append(_give_uncycled(batches, itself))
    return itself[0]


def _give_uncycled(
    batches: Generator[Any, None, str], itself: list[Generator[Any, None, str]]
) -> Generator[Any, None, str]:
    held: list[Any] = [itself.pop()]
    for _ in range(_MOST_BETWEEN):
        holders = gc.get_referrers(*held)
        if any(type(each) is itertools.cycle for each in holders):
            raise OptionError(_SAID)
        held = [each for each in holders if isinstance(each, _GIVES_ON)]
        if not held:
            break
    del held
    return (yield from batches)


_SAID = (
    "itertools.cycle keeps the batches of run.batches(...) and gives the same ones again. run.step doesn't count those, and a "
    "run that is killed would go on with the batches that were left, alone. Say how many batches a pass has: "
    "zip(run.batches(few, limit=len(loader)), run.batches(loader)) reads few on and on, in orders of its own."
)
