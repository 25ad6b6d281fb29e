# SPDX-License-Identifier: Apache-2.0
"""The engine's backward, which goes past those of torch's that scripts call: here listeners can stand around it.

It is looked up in this module at each call, so that it costs nothing where nobody listens.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from torch import Tensor
from torch.autograd import Variable
from torch.autograd.graph import _engine_run_backward

from truestep.core.accelerator import accelerator_here


def backward_of_losses(values: Tensor, seed: Tensor) -> None:
    """Accumulate into `.grad` the gradient of Σ seed·values: `torch.autograd.backward`, without its checks of the arguments.

    Those cost 8 µs, a tenth of the smallest step (docs/log.md), and here the seed is made to fit.
    """
    # no graph kept, none made of the backward itself, and gradients for all leaves: as `backward()` has it
    _engine()((values,), (seed,), False, False, (), allow_unreachable=True, accumulate_grad=True)


@cache
def _engine() -> Callable[..., Any]:
    """Return what runs a graph: without an accelerator it runs in this thread, so no context is copied for another one."""
    if accelerator_here() is not None:
        return _engine_run_backward
    run: Callable[..., Any] = Variable._execution_engine.run_backward
    return run
