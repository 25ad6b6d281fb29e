# SPDX-License-Identifier: Apache-2.0
"""How long worker processes are waited for that may never come to an end: as long as they get on."""

import time
from collections.abc import Sequence

POLL_SECONDS = 0.1  # after which they are looked at again
BUSY = 0.05  # of the time: who waits in a loop, looking now and then, uses less


class WorkerWaitError(Exception):
    """Workers that were not waited for any longer; its text says why, as a clause."""


class WorkerPatience:
    """Waits while workers read samples or compute, and at most `most_seconds`.

    A process that waits for what only another one has (a lock that was held when it was forked, a queue that a thread fills) does
    neither.
    """

    def __init__(self, quiet_seconds: float, most_seconds: float) -> None:
        self._quiet, self._most = quiet_seconds, most_seconds
        self._begin = self._since = time.monotonic()
        self._places: Sequence[int] = []
        self._used = 0.0

    def check(self, places: Sequence[int], processes: Sequence[int]) -> None:
        """Raise a WaitingError where waiting on is of no use; `places` are what the workers read at."""
        now, used = time.monotonic(), sum(map(_process_cpu_seconds, processes))
        if now - self._begin > self._most:
            raise WorkerWaitError(f"a process of its own was not through with that after {self._most:.0f} s")
        is_over = now - self._since > self._quiet
        if places == self._places and is_over and used - self._used < BUSY * (now - self._since):
            raise WorkerWaitError(
                f"a process of its own read nothing for {self._quiet:.0f} s and waited, as for a lock, a queue or a thread that "
                "only the training process has"
            )
        if places != self._places or is_over:
            self._since, self._used, self._places = now, used, places


def _process_cpu_seconds(process: int) -> float:
    import psutil  # rarely needed

    try:
        times = psutil.Process(process).cpu_times()
    except psutil.Error:  # it has ended
        return 0.0
    return float(times.user + times.system)
