# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Explainer


class SharedMemoryFull(Explainer):
    """The shared memory that workers pass batches through is full.

    Means: workers put each batch into /dev/shm, which containers limit to 64 MiB unless told otherwise.

    Recorded:
        ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).
        RuntimeError: DataLoader worker (pid 1234) is killed by signal: Bus error.

    Fix: docker run --shm-size=8g (or --ipc=host), in Kubernetes an emptyDir of medium Memory at /dev/shm; else fewer workers,
    prefetch_factor=1, or num_workers=0.

    Cases:
        `creating shared memory segment`: NCCL could not get its own part of /dev/shm.
        otherwise: {verdict}.
    """

    messages = (
        r"DataLoader worker [^\n]*is killed by signal: Bus error",
        r"insufficient shared memory \(shm\)",
        r"unable to (?:open|write to|mmap|allocate) (?:file|shared memory)[^\n]*/?(?:torch_|shm|dev/shm)[^\n]*",
        r"unable to allocate shared memory",
        r"No space left on device[^\n]*/(?:dev/shm|torch_)",
        r"Error while creating shared memory segment",
    )
    anywhere = True
    not_in_a_log = "how large /dev/shm was"
    verdict = "shared_memory"
