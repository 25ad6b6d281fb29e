# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Explainer


class ProviderUnavailable(Explainer):
    """onnxruntime runs nodes, or the whole model, on the CPU.

    Means: nodes go to the first provider that has them. A few on the CPU (shapes, indices) are by design; all of them mean that the
    CUDA provider did not load.

    Recorded:
        [W:onnxruntime:, session_state.cc:1166 VerifyEachNodeIsAssignedToAnEp] Some nodes were not assigned to the preferred
        execution providers which may or may not have an negative impact on performance.

    Fix: print session.get_providers(). If CUDAExecutionProvider is missing: pip uninstall onnxruntime, install
    onnxruntime-gpu for the
    installed CUDA and cuDNN, and import torch before it (or call onnxruntime.preload_dlls()).

    Cases:
        `Some nodes`: the CUDA provider is loaded and the CPU's is not listed: onnxruntime adds it for cheap nodes, and warns.
            Fix: list both: providers=["CUDAExecutionProvider", "CPUExecutionProvider"]. Where it is slow, log_severity_level=1
            lists the nodes: many of them mean operators without a CUDA kernel.
        `Specified provider`: {provider} is not part of the installed onnxruntime.
        otherwise: the CUDA provider did not load: a library of CUDA or cuDNN is missing, or of another major version.
    """

    messages = (
        r"Some nodes were not assigned to the preferred",
        r"Failed to create CUDAExecutionProvider",
        r"Specified provider '(?P<provider>\w+)' is not in available provider names",
        r"LoadLibrary failed with error \d+.*onnxruntime_providers_\w+",
        r"onnxruntime_providers_(?:cuda|shared|tensorrt)\.(?:so|dll)",
    )
    anywhere = True
    checks = ("DEV003",)
    not_in_a_log = "which nodes they are (log_severity_level=1 lists them)"
