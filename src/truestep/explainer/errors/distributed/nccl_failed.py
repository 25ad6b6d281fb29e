# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Explainer


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

    Cases:
        `NCCL built in`: this torch has no NCCL (a build for CPU, Windows or macOS).
            Fix: write init_process_group("gloo").
        `dense` or `No backend type`: NCCL moves tensors of GPUs alone.
            Fix: move the tensor to its card first, or init_process_group("cpu:gloo,cuda:nccl").
        `second=`: ranks {second} and {first} use the same card.
            Fix: call torch.cuda.set_device(int(os.environ["LOCAL_RANK"])) first, and start one process a card.
        `shared=`: the shared memory (/dev/shm) is full. Fix: docker run --shm-size=8g, or --ipc=host.
        `memory=`: the card's memory was full when NCCL asked for its own. Fix: halve the batch.
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
    besides = (
        r"Duplicate GPU detected : rank (?P<first>\d+) and rank (?P<second>\d+)",
        r"(?P<shared>creating shared memory segment|No space left)",
        r"(?P<memory>out of memory)",
    )
    anywhere = True
    not_in_a_log = "which call failed, unless NCCL_DEBUG=INFO was set"
