# SPDX-License-Identifier: Apache-2.0
"""A copy of a model to try things on, which leaves no trace in the run."""

import contextlib
import copy
import io
import random
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from truestep.doctor.watcher import Forward


class Trial:
    """Applies a copy of a module, in eval mode, to the inputs of a forward of the user's.

    Random streams, printed text and the module itself are afterwards as they were before.
    """

    def __init__(self, forward: Forward) -> None:
        self.forward = forward
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        states = random.getstate(), np.random.get_state()
        self._stack.callback(random.setstate, states[0])
        self._stack.callback(np.random.set_state, states[1])
        devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
        self._stack.enter_context(torch.random.fork_rng(devices))
        self._stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        self._stack.enter_context(torch.no_grad())
        try:
            self.copy = copy.deepcopy(self.forward.module)
            self.copy.eval()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def apply(self, first: Tensor | None = None) -> Any:
        """Return the copy's output, with another tensor as first input if one is given."""
        args = list(self.forward.args)
        if first is not None:
            args[0] = first
        return self.copy(*args, **self.forward.kwargs)
