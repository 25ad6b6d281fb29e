# SPDX-License-Identifier: Apache-2.0
"""Tells whether tensors hold numbers now: under a compiler, a tracer or torch.func they stand for others."""

import torch


def watch_may_look() -> bool:
    """Tell whether code runs eagerly, so that values may be looked at and what looks leaves no trace.

    Whether anything is compiling comes first in every wrapper and hook, here or right before: torch.compile knows the
    answer while it traces, and so compiles none of what follows and depends on none of it.
    """
    return not (
        torch.compiler.is_compiling()
        or torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch._C._len_torch_dispatch_stack()
        or (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())  # type: ignore[no-untyped-call]
    )
