# SPDX-License-Identifier: Apache-2.0
"""Operations that torch 2.13 can't differentiate in every mode, or differentiates wrongly, computed in a way that it can."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

_RECURRENT = frozenset({torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu})


@contextmanager
def every_mode() -> Iterator[None]:
    """Until the end of the block what runs has right derivatives in forward and reverse mode, of any order, and in batches."""
    before = torch._C._is_fwd_grad_enabled()
    try:
        with _Replacing():
            yield
    finally:
        torch._C._set_fwd_grad_enabled(before)


class _Replacing(TorchFunctionMode):
    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch._C._set_grad_enabled:  # torch.no_grad() stops reverse mode alone
            torch._C._set_fwd_grad_enabled(args[0])
        elif func in _RECURRENT:
            with _native_kernels():
                return func(*args, **kwargs)
        elif func is torch.cdist:
            return _distances(*args, **kwargs)
        elif func is F.normalize and kwargs.get("out") is not None:  # spectral norm, into its buffers
            return kwargs["out"].copy_(func(*args, **{**kwargs, "out": None}))
        return func(*args, **kwargs)


@contextmanager
def _native_kernels() -> Iterator[None]:
    """Leave out oneDNN, which has no forward derivative, and cuDNN, which has no second one (nor any in evaluation mode)."""
    before = torch._C._get_mkldnn_enabled(), torch._C._get_cudnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    torch._C._set_cudnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before[0])
        torch._C._set_cudnn_enabled(before[1])


def _distances(x1: Tensor, x2: Tensor, p: float = 2.0, **_: object) -> Tensor:
    """As `torch.cdist`, which has no forward and no second derivative, and whose batched derivative is wrong."""
    if p == 0:  # a count, whose derivative is 0 everywhere
        return torch.cdist(x1.detach(), x2.detach(), p)
    distances: Tensor = torch.linalg.vector_norm(x1.unsqueeze(-2) - x2.unsqueeze(-3), ord=p, dim=-1)
    return distances
