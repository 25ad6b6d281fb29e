# SPDX-License-Identifier: Apache-2.0
"""Becomes another program that the kernel ends when its parent is gone: `python tether.py PARENT PROGRAM ARGUMENT...`.

A process that only minds its own training never learns that its launcher was killed. Run as a script, so that nothing is imported.
"""

import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # of Linux's <sys/prctl.h>; the setting survives exec, and does not pass to children


def die_with_parent_process(parent: int) -> None:
    """Have this process killed as soon as its parent ends; at once, where that has happened already. On Linux."""
    if sys.platform != "linux":
        return
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    die_with_parent_process(int(sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])
