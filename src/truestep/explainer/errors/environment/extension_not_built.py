# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Explainer


class ExtensionNotBuilt(Explainer):
    """An extension in C++ or CUDA could not be compiled.

    Means: it needs ninja, a C++ compiler, and for CUDA the toolkit (nvcc) of torch's own CUDA major version.

    Recorded:
        OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install root.

    Fix: install the toolkit of torch.version.cuda, set CUDA_HOME to it, pip install ninja; the first "error:" above names what the
    compiler refused. A wheel for this torch and CUDA spares all of it.

    Cases:
        otherwise: {verdict}.
        `unsupported GNU`: this CUDA takes gcc up to {gcc}. Fix: install gcc-{gcc} and set CC and CXX to it.
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
    verdict = "cuda_home"
