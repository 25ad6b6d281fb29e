# SPDX-License-Identifier: Apache-2.0
"""The flags that decide whether torch repeats itself: read them, set them, put them back."""

import os
import warnings
from dataclasses import dataclass

import torch

CUBLAS_VARIABLE = "CUBLAS_WORKSPACE_CONFIG"
CUBLAS_REPEATS = (":4096:8", ":16:8")  # the values with which cuBLAS repeats itself, as torch checks them


@dataclass(frozen=True, kw_only=True)
class Flags:
    """The flags as they are in this process."""

    deterministic_algorithms: bool
    warn_only: bool
    cudnn_deterministic: bool
    cudnn_benchmark: bool
    cublas_workspace_config: str | None

    def restore(self) -> None:
        """Set every flag, and the environment variable, to what is recorded here."""
        now = read_flags()
        if (self.deterministic_algorithms, self.warn_only) != (now.deterministic_algorithms, now.warn_only):
            torch.use_deterministic_algorithms(self.deterministic_algorithms, warn_only=self.warn_only)
        torch.backends.cudnn.deterministic = self.cudnn_deterministic
        torch.backends.cudnn.benchmark = self.cudnn_benchmark
        if self.cublas_workspace_config is None:
            os.environ.pop(CUBLAS_VARIABLE, None)
        else:
            os.environ[CUBLAS_VARIABLE] = self.cublas_workspace_config


def read_flags() -> Flags:
    """Return the flags as they are now."""
    return Flags(
        deterministic_algorithms=torch.are_deterministic_algorithms_enabled(),
        warn_only=torch.is_deterministic_algorithms_warn_only_enabled(),
        cudnn_deterministic=torch.backends.cudnn.deterministic,
        cudnn_benchmark=torch.backends.cudnn.benchmark,
        cublas_workspace_config=os.environ.get(CUBLAS_VARIABLE),
    )


def make_deterministic(*, warn_only: bool = False) -> bool:
    """Choose deterministic algorithms everywhere; return whether it came in time for cuBLAS.

    A CUBLAS_WORKSPACE_CONFIG that is set already is kept. Where it is not, and CUDA has started, cuBLAS may have been
    set up without it: then a warning says so.
    """
    kept = bool(os.environ.get(CUBLAS_VARIABLE))
    in_time = kept or not torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    if not kept:
        os.environ[CUBLAS_VARIABLE] = CUBLAS_REPEATS[0]
    torch.use_deterministic_algorithms(True, warn_only=warn_only)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    if not in_time:
        warnings.warn(f"{LATE} {LATE_FIX}", stacklevel=3)
    return in_time


LATE = f"{CUBLAS_VARIABLE} was set after CUDA had started, when cuBLAS may have read it already: its products may vary."
LATE_FIX = f"Seed before the first use of torch.cuda, or export {CUBLAS_VARIABLE}={CUBLAS_REPEATS[0]}."
