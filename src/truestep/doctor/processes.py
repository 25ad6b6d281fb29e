# SPDX-License-Identifier: Apache-2.0
"""Does independent pieces of work in several processes, where that is worth their start."""

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeVar

_WORTH_IT = 400_000  # bytes of source: below, starting a process takes longer than it saves
_LARGE = 4  # pieces of this share of what a process does on average are worth being shared themselves
Result = TypeVar("Result")


def is_large(size: int, sizes: Sequence[int]) -> bool:
    """Tell whether a piece of work would keep one process busy while the others have nothing left."""
    return size >= _WORTH_IT and size * _LARGE * (os.cpu_count() or 1) > sum(sizes)


def shares_of(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Return (start, end) of about equal shares of a row, several for each processor: no two take equally long."""
    number = _LARGE * (os.cpu_count() or 1)
    bounds, done = [0], 0
    for index, size in enumerate(sizes):
        done += size
        if done * number >= sum(sizes) * len(bounds):
            bounds.append(index + 1)
    return list(pairwise(dict.fromkeys([*bounds, len(sizes)])))


def read_sources_in_processes(
    function: Callable[..., Result],
    arguments: Sequence[tuple[Any, ...]],
    sizes: Sequence[int],
    *,
    meanwhile: Callable[[], None],
) -> Iterator[Result]:
    """Yield what a function gives for each of these arguments, in their order; the largest are begun first.

    While it waits for other processes it calls `meanwhile` every second.
    """
    workers = min(os.cpu_count() or 1, len(arguments))
    if workers < 2 or sum(sizes) - max(sizes) < _WORTH_IT or not _can_fork():
        yield from (function(*each) for each in arguments)
        return
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor, wait

    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("fork")) as pool:
        largest_first = sorted(range(len(arguments)), key=lambda index: -sizes[index])
        futures = {index: pool.submit(function, *arguments[index]) for index in largest_first}
        for index in range(len(arguments)):
            while not wait([futures[index]], timeout=1.0).done:
                meanwhile()
            yield futures[index].result()


def _can_fork() -> bool:
    """Tell whether a copy of this process is safe: no other thread may hold a lock. Elsewhere a new one must import all."""
    return sys.platform == "linux" and threading.active_count() == 1
