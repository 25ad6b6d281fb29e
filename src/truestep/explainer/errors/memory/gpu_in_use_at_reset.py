# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Explainer


class GpuInUseAtReset(Explainer):
    """nvidia-smi refuses to reset a card, as a process uses it.

    Means: a reset is for a card that hangs, and needs that nothing uses it: no process, display or monitoring.

    Recorded:
        GPU 00000000:01:00.0 is currently in use by another process.
        1 device is currently being used by one or more other processes (e.g., Fabric Manager, CUDA application,
        graphics application such as an X server, or a monitoring application such as another instance of nvidia-smi).

    Fix: no reset is needed to free memory: `truestep gpus` lists who holds the card, and `truestep gpus --help` how to end your
    own processes. Memory without a process in the list belongs to a worker that outlived its parent: fuser -v /dev/nvidia*.
    """

    messages = (
        r"is currently in use by another (?:process|client)",
        r"currently being used by one or more other processes",
        r"GPU Reset couldn't run because",
        r"[Ii]n use by another client",
        r"all CUDA-capable devices are busy or unavailable",
    )
    anywhere = True
    not_in_a_log = "which process it is"
