# SPDX-License-Identifier: Apache-2.0
"""Telling an allocation failure from other errors, and giving back what it left behind."""

import gc

import torch

from truestep.core.device_specific import release_cached_memory
from truestep.engine.shared_context import LearnerContext

_SIGNS = (
    "out of memory",
    "can't allocate memory",  # torch's CPU allocator
    "not enough memory",  # the same on other platforms
    "std::bad_alloc",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "could not create a memory object",  # oneDNN
    "failed to allocate",
)


def is_out_of_memory_error(error: BaseException) -> bool:
    """Whether `error` says that memory could not be allocated, on a device or on the host."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(sign.lower() in str(error).lower() for sign in _SIGNS)


def release_memory_for_update(device: torch.device) -> None:
    """Collect cycles that hold tensors and give the device's cached blocks back."""
    # An exception and its frames hold each other, and so all tensors of the attempt.
    gc.collect()
    release_cached_memory(device)


def release_spent_gradients(context: LearnerContext) -> None:
    """Let go of gradients that every learner has stepped with: nothing needs them until the next update, which drops them."""
    if context.is_busy:
        return
    for learner in context.learners.values():
        learner.weights.release_spent_gradients(with_norm=not learner.policy.measures_norm)
