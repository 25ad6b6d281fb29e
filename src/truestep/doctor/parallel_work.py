# SPDX-License-Identifier: Apache-2.0
"""Does independent pieces of work in several processes, where that is worth their start."""

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from truestep.core.control_groups import num_usable_cpus

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

_WORTH_IT = 400_000  # bytes of source: below, starting a process takes longer than it saves
_LARGE = 4  # pieces of this share of what a process does on average are worth being shared themselves
Result = TypeVar("Result")
_open: "list[Connection]" = []  # this process's ends: one that is forked later must not hold them open


def is_bottleneck_task(size: int, sizes: Sequence[int]) -> bool:
    """Tell whether a piece of work would keep one process busy while the others have nothing left."""
    return size >= _WORTH_IT and size * _LARGE * num_usable_cpus() > sum(sizes)


def equal_shares(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Return (start, end) of about equal shares of a row, several for each processor: no two take equally long."""
    number = _LARGE * num_usable_cpus()
    bounds, done = [0], 0
    for index, size in enumerate(sizes):
        done += size
        if done * number >= sum(sizes) * len(bounds):
            bounds.append(index + 1)
    return list(pairwise(dict.fromkeys([*bounds, len(sizes)])))


def is_worth_multiprocessing(sizes: Sequence[int]) -> bool:
    """Tell whether pieces of work are done sooner by several processes."""
    several = min(num_usable_cpus(), len(sizes)) > 1 and sum(sizes) - max(sizes) >= _WORTH_IT
    return several and _can_fork()


def map_in_processes(
    function: Callable[..., Result],
    arguments: Sequence[tuple[Any, ...]],
    sizes: Sequence[int],
    *,
    meanwhile: Callable[[], None],
) -> Iterator[Result]:
    """Yield what a function gives for each of these arguments, in their order; the largest are begun first.

    While it waits for other processes it calls `meanwhile` every second.
    """
    if not is_worth_multiprocessing(sizes):
        yield from (function(*each) for each in arguments)
        return
    with ForkedProcesses(len(arguments), meanwhile) as forked:
        yield from forked.share(function, arguments, sizes)


class ForkedProcesses:
    """Copies of this process, made now: each has what this one had, and keeps what it makes for what it does next."""

    def __init__(self, most: int, meanwhile: Callable[[], None]) -> None:
        import multiprocessing

        self._meanwhile = meanwhile
        self._did: dict[int, Connection] = {}  # who did each piece of the last row
        self._processes: list[BaseProcess] = []
        self._connections: list[Connection] = []
        context: Any = multiprocessing.get_context("fork")
        for _ in range(min(num_usable_cpus(), most)):
            mine, other = context.Pipe()
            _open.append(mine)
            self._connections.append(mine)
            self._processes.append(context.Process(target=_serve_requests, args=(other,)))
            self._processes[-1].start()
            other.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in self._connections:
            connection.close()  # by which the other end knows
            _open.remove(connection)
        for process in self._processes:
            if kind is not None:
                process.terminate()
            process.join()

    def share(
        self, function: Callable[..., Result], arguments: Sequence[tuple[Any, ...]], sizes: Sequence[int]
    ) -> Iterator[Result]:
        """Yield what a function gives for each of these arguments, in their order; the largest are begun first.

        A piece is done by the process that did the one of the same place in the last row, if it is free in time.
        """
        waiting = sorted(range(len(arguments)), key=lambda index: -sizes[index])
        found: dict[int, Result] = {}
        busy: dict[Connection, int] = {}
        before, self._did = self._did, {}

        def send_next_work() -> None:
            for free in self._connections:
                if free not in busy and waiting:
                    others = waiting[-1 if before else 0]  # of what another process began, the smallest
                    index = next((each for each in waiting if before.get(each, free) is free), others)
                    waiting.remove(index)
                    free.send((function, arguments[index]))
                    busy[free] = index

        for index in range(len(arguments)):
            send_next_work()
            while index not in found:
                for done in self._ready_connections(busy):
                    found[busy[done]] = _receive_answer(done)
                    self._did[busy.pop(done)] = done
                send_next_work()
            yield found.pop(index)

    def tell(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call a function in every process."""
        for connection in self._connections:
            connection.send((function, arguments))
        for connection in self._connections:
            _receive_answer(connection)

    def _ready_connections(self, busy: "dict[Connection, int]") -> "list[Connection]":
        from multiprocessing.connection import wait

        while not (ready := wait(list(busy), timeout=1.0)):
            self._meanwhile()
        return [each for each in busy if each in ready]


def _serve_requests(connection: "Connection") -> None:
    """Do what is asked for until nobody can ask any more."""
    for each in _open:
        each.close()
    _open.clear()
    with contextlib.suppress(EOFError, KeyboardInterrupt, BrokenPipeError):
        while True:
            function, arguments = connection.recv()
            try:
                answer = True, function(*arguments)
            except Exception as error:  # noqa: BLE001 - raised where it was asked for
                answer = False, error
            connection.send(answer)


def _receive_answer(connection: "Connection") -> Any:
    try:
        succeeded, answer = connection.recv()
    except EOFError:
        raise ChildProcessError("A process that read files was ended from outside.") from None
    if not succeeded:
        raise answer
    return answer


def _can_fork() -> bool:
    """Tell whether a copy of this process is safe: no other thread may hold a lock. Elsewhere a new one must import all."""
    return sys.platform == "linux" and threading.active_count() == 1
