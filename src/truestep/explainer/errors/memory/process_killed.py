# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Explainer


class ProcessKilled(Explainer):
    """The system killed the process, most often as the machine's memory was used up.

    Means: signal 9 leaves no traceback; on Linux it is the kernel's answer when main memory runs out.

    Recorded:
        slurmstepd: error: Detected 1 oom_kill event in StepId=1.batch. Some of the step tasks have been OOM Killed.

    Fix: look at dmesg for "Out of memory" and give the job more memory, or take less: fewer workers, no lists that grow
    with every step, data read piece by piece.

    Cases:
        `oom`: the system's out-of-memory handler ended it.
    """

    messages = (
        r"^\s*(?:\S+: line \d+: +\d+ )?Killed(?:\s|$)",
        r"oom[-_ ]kill",
        r"Signal 9 \(SIGKILL\) received by PID",
        r"exitcode\s*:? ?-9\b",
        r"died with <Signals\.SIGKILL: 9>",
        r"out-of-memory handler",
    )
    anywhere = True
    not_in_a_log = "how much memory it used; dmesg on that machine can"
