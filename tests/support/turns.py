# SPDX-License-Identifier: Apache-2.0
"""Which tests a draw of all of them holds: what is dear comes in turn, and ten draws in a row hold every test.

`make test` is a draw, whose number is the day; `make test DRAW=20787` is the draw of one day again. A function of tests has
`SECONDS` of processor time in a draw: of a grid that takes ten times as long each draw holds a tenth, and of a single test
that does, one draw in ten. Grids of drawn programs come in as many draws as they are `sliced`, up to twenty. `tests/costs.txt`
says what takes how long, as `make costs` measured it (support/costs.py).
"""

import math
import os
import zlib
from functools import cache
from pathlib import Path

SECONDS = 0.33
DRAWS = 10  # in so many draws in a row every test is, but for grids that are sliced more
COSTS = Path(__file__).parents[1] / "costs.txt"


def draw() -> int | None:
    """Return the number of this draw; None where tests are not drawn: only grids that are marked `sliced` are cut then."""
    asked = os.environ.get("TRUESTEP_TEST_DRAW", "")
    return int(asked) if asked else None


@cache
def costs() -> dict[str, float]:
    """Return how many seconds of processor time a case takes, by a function's name behind its file's."""
    lines = COSTS.read_text("utf-8").splitlines()
    return {name: float(seconds) for seconds, name in map(str.split, lines)}


def grids(items) -> dict:
    """Return the cases of each function, by what is the same for them: a case can have marks of its own."""
    found: dict = {}
    for item in items:
        if item.get_closest_marker("slow") is None:
            marked = item.get_closest_marker("sliced")
            (one_in,) = marked.args if marked else (1,)
            marks = tuple(item.get_closest_marker(name) is not None for name in ("gpu", "whole"))
            found.setdefault((item.parent, item.originalname, marks, one_in), []).append(item)
    return found


def turns_of(cases, name: str, one_in: int) -> int:
    """Return in how many draws the cases of a function come, once each."""
    if cases[0].get_closest_marker("whole") is not None:
        return 1
    return max(one_in, min(DRAWS, math.ceil(len(cases) * costs().get(name, 0) / SECONDS)))


def cases_of_turn(cases, turns: int, turn: int) -> list:
    """Return the cases that come in a turn: each turn has each parameter's values as far as its cases go."""
    left = sorted(cases, key=lambda item: zlib.crc32(item.name.encode()))
    # by identity: some can't be hashed, and `indices` numbers the cases where fixtures are not asked
    values = {item: {(name, id(each)) for name, each in _parameters(item)} for item in cases}
    taken: list = []
    for number in range(turn + 1):
        seen: set = set()
        taken = []
        for _ in range(-(-len(left) // (turns - number))):
            best = max(left, key=lambda item: len(values[item] - seen))
            seen |= values[best]
            left.remove(best)
            taken.append(best)
    return taken


def _parameters(item):
    return item.callspec.params.items() if hasattr(item, "callspec") else ()


def left_out(items, number: int | None) -> list:
    """Return the tests that a draw leaves out, or those that a slice does."""
    found = []
    for (_, function, _, one_in), cases in grids(items).items():
        turns, turn = one_in, 0
        if number is not None:
            name = f"{cases[0].parent.nodeid}::{function}"
            turns = turns_of(cases, name, one_in)
            turn = (number + zlib.crc32(name.encode())) % turns  # the single ones do not all come in one draw
        if turns > 1:
            kept = set(cases_of_turn(cases, turns, turn))
            found += [item for item in cases if item not in kept]
    return found


def told(number: int) -> str:
    return f"draw {number}: what is dear comes in turn, all of it in {DRAWS} draws; make test DRAW={number} repeats this one"
