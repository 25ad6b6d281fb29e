# SPDX-License-Identifier: Apache-2.0
"""`-p support.costs`: measure what each test costs, and have `costs.txt` say it of the functions that take long.

Counted is the processor time of the test process and of all that it started: what runs and what ended, and what the
processes of `warm` forked. Functions that were not run keep their lines.
"""

import collections
import os
import statistics
import time
from pathlib import Path

import pytest

from support import turns

WORTH = turns.SECONDS  # of a function's cases together: what is cheaper is in each draw, and has no line
WORTH_A_CASE = 0.015  # registers of small cases, as of pages and names, stay whole by it
TICKS = os.sysconf("SC_CLK_TCK")
TAKEN: dict[str, list[float]] = collections.defaultdict(list)
CASES: collections.Counter = collections.Counter()


def _children(process: str) -> list[str]:
    """Return the numbers of the processes that one has started, and that are there."""
    found: list[str] = []
    for task in Path(f"/proc/{process}/task").iterdir():
        found += (task / "children").read_text().split()
    return found


def _computed(process: str) -> int:
    """Return a process's ticks, with those of its ended children; of a warm process these alone: tests share what it loads."""
    folder = Path(f"/proc/{process}")
    own_and_children = map(int, (folder / "stat").read_text().rpartition(")")[2].split()[11:15])
    return sum([*own_and_children][2 if b"warm_process" in (folder / "cmdline").read_bytes() else 0 :])


def processor_time() -> float:
    """Return the seconds that this process and all below it have computed, the ended ones too."""
    own, left = os.times(), _children(str(os.getpid()))
    seconds = time.process_time() + own.children_user + own.children_system
    while left:
        process = left.pop()
        try:
            left += _children(process)
            seconds += _computed(process) / TICKS
        except OSError:  # it has ended meanwhile
            continue
    return seconds


def function_of(item) -> str:
    return f"{item.parent.nodeid}::{item.originalname}"


def case_of(seconds: list[float]) -> float:
    """Return what a case takes: without the dearest of several, which starts what the others find."""
    return statistics.mean(sorted(seconds)[:-1] if len(seconds) > 2 else seconds)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    CASES.update(function_of(item) for item in items if item.get_closest_marker("gpu") is None)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    before = processor_time()
    try:
        return (yield)
    finally:
        TAKEN[function_of(item)].append(max(0.0, processor_time() - before))


def lines(taken: dict[str, list[float]], cases: collections.Counter, before: dict[str, float]) -> list[str]:
    """Return what `costs.txt` says now: of what was not run, what it said before."""
    found = {name: seconds for name, seconds in before.items() if name not in taken}
    for name, seconds in taken.items():
        case = case_of(seconds)
        if case >= WORTH_A_CASE and case * cases[name] >= WORTH:
            found[name] = case
    return [f"{found[name]:.3f} {name}\n" for name in sorted(found)]


def pytest_sessionfinish():
    turns.COSTS.write_text("".join(lines(TAKEN, CASES, turns.costs())), "utf-8")
