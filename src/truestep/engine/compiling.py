# SPDX-License-Identifier: Apache-2.0
"""Compiling a learner's loss functions with torch.compile, and saying what torch can't compile."""

from collections.abc import Callable
from typing import Any

import torch

from truestep.core.errors import OptionError
from truestep.core.per_example_random import NOT_COMPILED

MOST_KEPT = 8
"""Losses that are kept compiled: one that is defined anew for each batch would keep that batch alive."""
_DOUBLE_BACKWARD = "does not currently support double backward"
_GRADIENTS_WITHIN = ("autograd.grad", "requires_grad_()")  # torch 2.11 and 2.12 stop at the latter


class LossCompiler:
    """Compiles each loss function once, as one graph; other batch sizes make it dynamic in that dimension."""

    def __init__(self) -> None:
        # Not by weak references: what torch.compile returns holds the function, so that none of them would ever die.
        self._compiled: dict[Callable[..., Any], Callable[..., Any]] = {}

    def call(self, loss: Callable[[Any], Any], batch: Any) -> Any:
        """Call the compiled form of `loss`."""
        compiled = self._compiled.get(loss)
        if compiled is None:
            while len(self._compiled) >= MOST_KEPT:
                del self._compiled[next(iter(self._compiled))]  # the oldest
            compiled = self._compiled[loss] = torch.compile(loss, fullgraph=True)
        return compiled(batch)


def loss_compile_refusal(error: BaseException) -> OptionError | None:
    """Return a clear refusal if `error` means that torch can't compile this loss, None otherwise."""
    text = str(error)
    is_unsupported = "Unsupported" in type(error).__name__
    if _DOUBLE_BACKWARD in text or (is_unsupported and any(each in text for each in _GRADIENTS_WITHIN)):
        return OptionError(
            "compile=True can't be used with this loss: it differentiates a gradient (a gradient penalty, for example), and "
            "torch.compile does not support double backward. Use compile=False for this learner; the eager update is exact."
        )
    if NOT_COMPILED in text:
        return OptionError(NOT_COMPILED)
    if type(error).__module__.startswith("torch._dynamo"):
        lines = [line.strip() for line in text.splitlines() if line.strip()] or [type(error).__name__]
        first = " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]
        return OptionError(
            f"compile=True could not turn this loss into one graph ({first}). Take prints, .item() and data-dependent branches "
            "out of the loss, or use compile=False for this learner."
        )
    return None
