# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Crash, Explainer, Match
from truestep.explainer.values import torch_if_imported


class CudaLibraryNotInitialized(Explainer):
    """cuDNN or cuBLAS can't start.

    Means: these libraries need memory of their own at their first call; mostly the GPU is full, sometimes they do not
    fit the driver or another copy is loaded.

    Recorded:
        RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED

    Fix: look at the free memory first (`truestep gpus`): end old processes, or halve the batch. With a free card `truestep
    env` compares driver, torch and cuDNN; unset LD_LIBRARY_PATH, where another cuDNN may stand.

    Cases:
        `before=assert`: a device-side assert came before it: an index out of range in an earlier kernel.
            Fix: run one batch on the CPU, where the line and the index are named (truestep errors device-side-assert).
        otherwise: {free} MiB of {total} MiB are free on the card: it is full.
        `enough=`: {verdict}.
    """

    messages = (
        r"CUDNN_STATUS_NOT_INITIALIZED",
        r"CUBLAS_STATUS_NOT_INITIALIZED",
        r"CUDNN_STATUS_INTERNAL_ERROR",
        r"CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH",
        r"CUDNN_STATUS_EXECUTION_FAILED",
        r"CUDNN_STATUS_MAPPING_ERROR",
        r"GET was unable to find an engine to execute this computation",
        r"cuDNN version incompatibility",
    )
    anywhere = True
    not_in_a_log = "how much memory was free"
    verdict = "one_cudnn"

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        if "device-side assert" in crash.message or "Assertion `" in crash.context:
            return {"before": "assert"}
        torch = torch_if_imported()
        if not crash.is_live or torch is None or not torch.cuda.is_available():
            return {}
        free, total = torch.cuda.mem_get_info()
        full = {"free": f"{free / 2**20:.0f}", "total": f"{total / 2**20:.0f}"}
        return full if free < 0.05 * total else {"enough": "yes"}
