# SPDX-License-Identifier: Apache-2.0
"""The NVIDIA cards of this machine: read, choose, claim."""

from truestep.machine.gpus.read import GpuReport, read_gpus
from truestep.machine.gpus.records import Gpu, GpuProcess, MigInstance

__all__ = ["Gpu", "GpuProcess", "GpuReport", "MigInstance", "gpus"]


def gpus() -> GpuReport:
    """Return every NVIDIA card: memory, load, temperature, power, settings and processes.

    Never raises: where there is no card, `error` says why. Neither torch nor CUDA is started.
    """
    return read_gpus()
