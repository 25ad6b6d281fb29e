# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Crash, Explainer, Match


class DriverTooOld(Explainer):
    """The NVIDIA driver is older than the CUDA that torch was built for.

    Means: a driver runs programs for its own CUDA version and older ones; torch brings its CUDA, the driver does not.

    Recorded:
        RuntimeError: The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver by
        downloading and installing a new version from the URL: http://www.nvidia.com/Download/index.aspx

    Fix: update the driver, or install a torch built for a CUDA version that `nvidia-smi` shows (upper right corner) or an
    older one.

    Cases:
        otherwise: {verdict}.
        otherwise: the driver supports CUDA {cuda} at most.
    """

    messages = (
        r"The NVIDIA driver on your system is too old \(found version (?P<version>\d+)\)",
        r"CUDA driver version is insufficient for CUDA runtime version",
        r"cuda runtime error \(35\)",
        r"forward compatibility was attempted on non supported HW",
        r"provided PTX was compiled with an unsupported toolchain",
    )
    anywhere = True
    not_in_a_log = "the driver's version on that machine"
    verdict = "driver_new_enough"

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        version = int(match.groupdict().get("version") or 0)
        return {"cuda": f"{version // 1000}.{version % 1000 // 10}"} if version else {}
