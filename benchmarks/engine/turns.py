# SPDX-License-Identifier: Apache-2.0
"""A contender of `update.py` in a process of its own, which takes turns of steps with others.

What stands beside an open run is looked at: a `backward`, `zero_grad` or `step` by hand takes 27 of 430 µs longer in its process
than in one without it. So a loop by hand that shares the process is not the best one.
"""

import itertools
import json
import os
import subprocess
import sys
import time

WARM_UP = 100


def work(kind, name):
    """Make the steps that are asked for on standard input."""
    import gc

    import torch
    import update

    torch.set_num_threads(1)
    contender = getattr(update, kind)(next(row for row in update.rows() if row.name == name))
    contender.run(WARM_UP)
    gc.collect()
    gc.disable()
    for line in sys.stdin:
        moments, began = [time.perf_counter_ns()], time.process_time_ns()
        for _ in range(int(line)):
            contender.run(1)
            moments.append(time.perf_counter_ns())
        print(json.dumps([time.process_time_ns() - began, moments]), flush=True)


class Contender:
    """A process that makes steps."""

    def __init__(self, kind, name, source=None):
        """`kind`: a class of `update.py`; `name`: of a row; `source`: the folder that the package is taken from."""
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", __file__, kind, name],
            env=os.environ | ({"PYTHONPATH": source} if source else {}),
            **dict.fromkeys(("stdin", "stdout"), subprocess.PIPE),
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def turn(self, steps):
        """Make so many steps; return the microseconds of processor time of one, and of each by the clock."""
        self._process.stdin.write(f"{steps}\n")
        self._process.stdin.flush()
        spent, moments = json.loads(self._process.stdout.readline())
        return spent / steps / 1000, [(end - begin) / 1000 for begin, end in itertools.pairwise(moments)]

    def close(self):
        self._process.stdin.close()
        self._process.wait()


if __name__ == "__main__":
    work(*sys.argv[1:])
