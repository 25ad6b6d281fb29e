# SPDX-License-Identifier: Apache-2.0
"""A function, or a program, in several processes that train together: from Python, notebooks and the command line."""

import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from truestep.core.errors import OptionError, RankError
from truestep.core.text_formatting import a_type
from truestep.run.launching import tether
from truestep.run.launching.agent import LaunchOptions, run_launched_processes
from truestep.run.launching.tether import die_with_parent_process


class _FunctionTiedToParent:
    """A function that ends with its parent."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function, self._parent = function, os.getpid()
        self.__name__ = self.__qualname__ = function.__qualname__  # torch names it
        self.__module__ = function.__module__

    def __call__(self, *arguments: Any) -> Any:
        die_with_parent_process(self._parent)
        return self._function(*arguments)


def spawn(function: Callable[..., Any], processes: int, *arguments: Any, restarts: int = 0) -> list[Any]:
    """Call `function(*arguments)` in so many processes of this machine, which a `ts.Run` in it connects; return what each returned.

    From a file, the function must be importable (at its top level, the call below `if __name__ == "__main__":`). In a notebook
    it may be defined in a cell, as long as nothing has used the GPU before.

    Args:
        function: what each process does; which it is says `run.rank`.
        processes: how many.
        arguments: what each is given.
        restarts: how often all are started again after one has failed.

    Raises:
        RankError: a process failed; the message says which was first, of what and where.
    """
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    if not callable(function):
        raise OptionError(
            f"ts.spawn was given {a_type(function)}, and calls a function itself, in each process. Write its name without "
            "parentheses, and what it is given behind the number: ts.spawn(train, 2, folder)."
        )
    if isinstance(processes, bool) or not isinstance(processes, int):
        raise OptionError(
            f"ts.spawn takes the number of processes second, and got {a_type(processes)}: ts.spawn(train, 2)."
        )
    with tempfile.TemporaryDirectory(prefix="truestep-logs-") as folder:
        launch = LaunchOptions(processes=processes, restarts=restarts, logs=Path(folder))
        try:
            found = run_launched_processes(launch, _FunctionTiedToParent(function), arguments)
        except ChildFailedError as failure:
            from truestep.run.launching.failure import describe_process_deaths, process_deaths_by_cause

            # What they wrote is in a folder that is gone with this call.
            deaths = [
                death._replace(log=None) for death in process_deaths_by_cause(failure.failures, launch.logs)
            ]
            error = RankError(describe_process_deaths(deaths))
            error.rank = deaths[0].rank
            raise error from None
    return [found[rank] for rank in sorted(found)]


def launch_python(launch: LaunchOptions, words: Sequence[str]) -> int:
    """Run `python words...` in every process and wait; return the exit status, after saying what failed."""
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    command = [tether.__file__, str(os.getpid()), sys.executable, *words]
    try:
        run_launched_processes(launch, sys.executable, ["-I", "-S", *command])
    except ChildFailedError as failure:
        from truestep.run.launching.failure import describe_process_deaths, process_deaths_by_cause

        deaths = process_deaths_by_cause(failure.failures, launch.logs)
        sys.stderr.write(f"truestep: {describe_process_deaths(deaths)}\n")
        return deaths[0].status
    except SignalException as asked:
        sys.stderr.write(
            f"truestep: stopped as asked ({asked.sigval.name}); the processes had {launch.grace_seconds} s to save\n"
        )
        return 128 + int(asked.sigval)
    return 0
