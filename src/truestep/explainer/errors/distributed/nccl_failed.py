# SPDX-License-Identifier: Apache-2.0
"""NcclFailed."""

import re

from truestep.explainer.crash import Crash
from truestep.explainer.explainer import Cause, Explainer, Match


class NcclFailed(Explainer):
    """NCCL, which moves tensors between GPUs, reports an error.

    Means: a call between cards failed: two ranks on one card, the network, or too little shared memory.

    Recorded:
        torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:219, invalid usage,
        NCCL version 2.21.5
        Last error:
        Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000

    Fix: call torch.cuda.set_device(int(os.environ["LOCAL_RANK"])) before anything else; then run with NCCL_DEBUG=INFO, which names
    the failing call; check /dev/shm and NCCL_SOCKET_IFNAME.
    """

    messages = (
        r"NCCL error in: [^,\n]+, (?P<kind>unhandled \w+ error|invalid \w+|internal error)",
        r"NCCL (?:Error \d+: |error in: [^\n]*?)(?P<kind>unhandled \w+ error|invalid \w+|internal error)",
        r"Duplicate GPU detected",
        r"NCCL [Ee]rror|ncclSystemError|ncclUnhandledCudaError|ncclInternalError|ncclInvalidUsage",
        r"Tensors must be CUDA and dense",
        r"No backend type associated with device type (?P<device>\w+)",
        r"Distributed package doesn't have NCCL built in",
    )
    anywhere = True
    checks = ("DIST003",)
    not_in_a_log = "which call failed, unless NCCL_DEBUG=INFO was set"

    def cause(self, crash: Crash, match: Match) -> Cause | None:
        text = crash.text
        if "NCCL built in" in match[0]:
            return Cause(
                "this torch has no NCCL (a build for CPU, Windows or macOS).",
                'write init_process_group("gloo").',
            )
        if "dense" in match[0] or "No backend type" in match[0]:
            return Cause(
                "NCCL moves tensors of GPUs alone.",
                'move the tensor to its card first, or init_process_group("cpu:gloo,cuda:nccl").',
            )
        twice = re.search(r"Duplicate GPU detected : rank (\d+) and rank (\d+)", text)
        if twice:
            return Cause(
                f"ranks {twice[2]} and {twice[1]} use the same card.",
                'call torch.cuda.set_device(int(os.environ["LOCAL_RANK"])) first, and start one process a card.',
            )
        if "creating shared memory segment" in text or "No space left" in text:
            return Cause("the shared memory (/dev/shm) is full.", "docker run --shm-size=8g, or --ipc=host.")
        if "out of memory" in text:
            return Cause("the card's memory was full when NCCL asked for its own.", "halve the batch.")
        return None
