# SPDX-License-Identifier: Apache-2.0
import os

from truestep.explainer.explainer import Crash, Explainer, Match


class NoDevice(Explainer):
    """CUDA is asked for where this process has no GPU: a torch for the CPU, no driver, or no visible card.

    Means: code names "cuda" although torch.cuda.is_available() is False here.

    Raises:
        torch.zeros(1).cuda()

    Works:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        torch.zeros(1).to(device)

    Fix: install a torch built for CUDA where torch.version.cuda is None; look at CUDA_VISIBLE_DEVICES, and for a container
    at --gpus all. Code for any machine chooses: device = "cuda" if torch.cuda.is_available() else "cpu".

    Cases:
        `not compiled` or `_cuda_`: the installed torch is a build for the CPU.
            Fix: reinstall torch for CUDA: pip uninstall torch torchvision, then the line that
            https://pytorch.org/get-started gives; pip took the CPU's from its default index or a mirror.
        `unknown error`: the driver did not start: after a suspend or an update it must be loaded again.
            Fix: restart the machine, or reload the driver: sudo rmmod nvidia_uvm && sudo modprobe nvidia_uvm.
        otherwise: CUDA_VISIBLE_DEVICES is {state}. Fix: unset it, or name cards that `truestep gpus` lists.
    """

    messages = (
        r"Torch not compiled with CUDA enabled",
        r"Found no NVIDIA driver on your system",
        r"No CUDA GPUs are available",
        r"no CUDA-capable device is detected",
        r"libcuda\.so\.1: cannot open shared object file",
        r"cuda runtime error \((?:38|100)\)",
        r"Cannot get CUDA generator without ATen_cuda library",
        r"No HIP GPUs are available",
        r"CUDA unknown error - this may be due to an incorrectly set up environment",
        r"(?:module 'torch\._C'|torch\._C) has no attribute '_cuda_\w+'",
    )
    anywhere = True
    checks = ("DEV006", "DEV001")
    not_in_a_log = "CUDA_VISIBLE_DEVICES, and whether there was a card at all"

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
        if hidden is None or not crash.is_live or "NVIDIA driver" in match[0]:
            return {}
        # its value is the user's own; that it is set is what counts
        return {"state": "set, to cards that this machine may not have" if hidden.strip() else "empty"}
