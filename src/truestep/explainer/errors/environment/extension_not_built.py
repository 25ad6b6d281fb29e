# SPDX-License-Identifier: Apache-2.0
"""ExtensionNotBuilt."""

from truestep.explainer.crash import Crash
from truestep.explainer.environment import environment_cause
from truestep.explainer.explainer import Cause, Explainer, Match


class ExtensionNotBuilt(Explainer):
    """An extension in C++ or CUDA could not be compiled.

    Means: it needs ninja, a C++ compiler, and for CUDA the toolkit (nvcc) of torch's own CUDA major version.

    Recorded:
        OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install root.

    Fix: install the toolkit of torch.version.cuda, set CUDA_HOME to it, pip install ninja; the first "error:" above names what the
    compiler refused. A wheel for this torch and CUDA spares all of it.
    """

    messages = (
        r"CUDA_HOME environment variable is not set",
        r"Error building extension '(?P<name>\w+)'",
        r"Ninja is required to load C\+\+ extensions",
        r"Command '\['ninja'[^\n]*returned non-zero exit status",
        r"Error compiling objects for extension",
        r"unsupported GNU version! gcc versions later than (?P<gcc>\d+)",
        r"Microsoft Visual C\+\+ 14\.0 (?:or greater )?is required",
        r"command '[^']*(?:nvcc|gcc|g\+\+|cl\.exe)[^']*' failed with exit",
        r"Unknown CUDA arch",
    )
    anywhere = True
    not_in_a_log = "which compiler and toolkit were found"

    def cause(self, crash: Crash, match: Match) -> Cause | None:
        found = environment_cause("cuda_home") if crash.is_live else None
        if found:
            return Cause(f"{found.says}.")
        if match.groupdict().get("gcc"):
            return Cause(
                f"this CUDA takes gcc up to {match['gcc']}.",
                f"install gcc-{match['gcc']} and set CC and CXX to it.",
            )
        return None
