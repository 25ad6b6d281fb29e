# SPDX-License-Identifier: Apache-2.0
"""Of several processes, noting by which exception one's loop is ended: code outside may catch it and end as if nothing had been."""

import sys
from types import TracebackType
from typing import Self

from truestep.core.errors import RankError
from truestep.core.loop_exit_exception import (
    describe_traceback,
    exit_status,
    exit_status_of,
    trace_leaving_loop,
)
from truestep.engine.processes.world import World


class LoopEndingExceptionRecorder:
    """A block in a loop's generator that notes by which exception the loop is ended, by the loop's own code or the generator's."""

    def __init__(self, world: World | None) -> None:
        self._world = world

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        world = self._world
        if world is None or world.error is not None or error is None or sys.is_finalizing():
            return
        if isinstance(error, GeneratorExit):
            trace = trace_leaving_loop(sys._getframe(1))
        if trace is None or isinstance(error, RankError):
            return
        status = exit_status(error.code) if isinstance(error, SystemExit) else exit_status_of(trace)
        world.left_loop.note(describe_traceback(trace), status)
