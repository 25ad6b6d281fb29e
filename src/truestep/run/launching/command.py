# SPDX-License-Identifier: Apache-2.0
"""A program in several processes: what `truestep launch` and `truestep train --processes` do."""

import os
import sys
from collections.abc import Sequence

from truestep.run.launching import tether
from truestep.run.launching.agent import LaunchOptions, run_launched_processes


def launch_python(launch: LaunchOptions, words: Sequence[str]) -> int:
    """Run `python words...` in every process and wait; return the exit status, after saying what failed."""
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    command = [tether.__file__, str(os.getpid()), sys.executable, *words]
    try:
        run_launched_processes(launch, sys.executable, ["-I", "-S", *command])
    except ChildFailedError as failure:
        from truestep.run.launching.failure import describe_deaths, launched_deaths

        deaths = launched_deaths(failure.failures, launch.logs)
        sys.stderr.write(f"truestep: {describe_deaths(deaths)}\n")
        return deaths[0].status
    except SignalException as asked:
        sys.stderr.write(
            f"truestep: stopped as asked ({asked.sigval.name}); the processes had {launch.grace_seconds} s to save\n"
        )
        return 128 + int(asked.sigval)
    return 0
