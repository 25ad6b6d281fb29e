# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Explainer


class IllegalMemoryAccess(Explainer):
    """A kernel on the GPU read or wrote outside of its memory.

    Means: a bug of a kernel (often an extension's, or an index without a check) or a faulty card; the line shown is late.

    Recorded:
        RuntimeError: CUDA error: an illegal memory access was encountered
        CUDA kernel errors might be asynchronously reported at some other API call.

    Fix: run with CUDA_LAUNCH_BLOCKING=1 to get the right line, and one batch on the CPU to see an index out of range.
    Recompile extensions for the installed torch; if it moves from run to run, look for Xid in dmesg.
    """

    messages = (
        r"an illegal memory access was encountered",
        r"cuda runtime error \((?:77|700)\)",
        r"CUDA error: (?:misaligned address|unspecified launch failure|an illegal instruction was encountered)",
        r"CUBLAS_STATUS_EXECUTION_FAILED",
        r"uncorrectable ECC error encountered",
    )
    not_in_a_log = "which kernel it was, unless CUDA_LAUNCH_BLOCKING=1 was set"
