# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Explainer


class NoKernelImage(Explainer):
    """The installed torch, or an extension, was not compiled for this card.

    Means: kernels are compiled for certain compute capabilities (sm_80, sm_90, ...), and this card's is not among them.

    Recorded:
        UserWarning: NVIDIA GeForce RTX 5090 with CUDA capability sm_120 is not compatible with the current PyTorch installation.
        RuntimeError: CUDA error: no kernel image is available for execution on the device

    Fix: install a torch built for the card: a newer one for new cards, an older one for old cards (`truestep env` compares
    both). An extension: recompile it with TORCH_CUDA_ARCH_LIST set to the card's capability.

    Cases:
        otherwise: {verdict}.
        otherwise: the card has the capability {capability}, for which this torch has no kernels.
    """

    messages = (
        r"no kernel image is available for execution on the device",
        r"cuda runtime error \(209\)",
        r"with CUDA capability (?P<capability>sm_\d+) is not compatible with the current PyTorch installation",
        r"named symbol not found",
        r"CUDA error: invalid device function",
    )
    besides = (r"with CUDA capability (?P<capability>sm_\d+) is not compatible",)  # torch's own warning
    anywhere = True
    not_in_a_log = "which card it was and what the torch there was built for, where its warning is missing"
    verdict = "capability_built"
