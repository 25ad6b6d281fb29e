# SPDX-License-Identifier: Apache-2.0
"""Operations that torch 2.13 can't differentiate in every mode, or differentiates wrongly, computed in a way that it can."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import signature
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from truestep.core.errors import LossError

_RECURRENT = frozenset({torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu})
_CELLS = frozenset({torch.lstm_cell, torch.gru_cell, torch.rnn_tanh_cell, torch.rnn_relu_cell})


@contextmanager
def derivatives_in_every_mode() -> Iterator[None]:
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
        kwargs = dict(kwargs or {})
        if func is torch._C._set_grad_enabled:  # torch.no_grad() stops reverse mode alone
            torch._C._set_fwd_grad_enabled(args[0])
        elif func in _RECURRENT or func in _CELLS:
            with _native_kernels():
                return func(*_one_state_for_each(args), **kwargs)
        elif func in _RULES:
            return _RULES[func](*args, **kwargs)
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


def _one_state_for_each(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Give a recurrent layer a first state for each example that `vmap` runs, since its kernel adds to it in place."""
    inputs, further = arguments[0], list(arguments[1:])
    packed = isinstance(further[0], Tensor) and not further[0].is_floating_point()
    # In a transform torch would read memory of a packed sequence that is not there.
    if packed and torch._C._functorch.peek_interpreter_stack() is not None:
        raise LossError(
            "A recurrent layer can't run on a packed sequence inside torch.func, and so has no Jacobian there. Give it the "
            "padded sequence, and mask the outputs after each example's end."
        )
    state, nothing = further[packed], torch.zeros_like(inputs).sum()
    if isinstance(state, Tensor):
        further[packed] = state + nothing.to(state.dtype)
    else:
        further[packed] = tuple(each + nothing.to(each.dtype) for each in state)
    return inputs, *further


def _distances(x1: Tensor, x2: Tensor, p: float = 2.0, *further: Any, **named: Any) -> Tensor:
    """As `torch.cdist`, which has no forward and no second derivative, and whose batched derivative is wrong."""
    alike = x1.shape[-1:] == x2.shape[-1:] and x1.dtype == x2.dtype and min(x1.ndim, x2.ndim) > 1
    # Otherwise torch raises, or counts what differs (p=0), whose derivative is 0 everywhere.
    if not (alike and isinstance(p, int | float) and p > 0):
        constant: Tensor = torch.cdist(x1.detach(), x2.detach(), p, *further, **named)
        return constant
    distances: Tensor = torch.linalg.vector_norm(x1.unsqueeze(-2) - x2.unsqueeze(-3), ord=p, dim=-1)
    return distances


def _parametric_relu(values: Tensor, weight: Tensor) -> Tensor:
    """As `torch.prelu`, whose derivative by the weight fails for many vectors at once."""
    channels = values.shape[1] if values.ndim > 1 else 1
    if not isinstance(weight, Tensor) or weight.ndim > 1 or weight.numel() not in (1, channels):
        return torch.prelu(values, weight)  # which says what is wrong
    slopes = weight.reshape(-1, *[1] * (values.ndim - 2)) if weight.numel() > 1 else weight.reshape(())
    # What lies above has no part in the slope's derivative.
    below = torch.where(values > 0, 0.0, values)
    return torch.where(values > 0, values, slopes * below)


def _instance_norm(*arguments: Any, **named: Any) -> Tensor:
    """As `F.instance_norm`, without the running statistics that it only writes to."""
    given = signature(F.instance_norm).bind(*arguments, **named).arguments
    if given.get("use_input_stats", True):
        given |= {"running_mean": None, "running_var": None}
    return F.instance_norm(**given)


def _embedding_bag(*arguments: Any, **named: Any) -> Tensor:
    """As `F.embedding_bag` of bags of one size, which torch can't differentiate by anything beside its table."""
    bound = signature(F.embedding_bag).bind(*arguments, **named)
    bound.apply_defaults()
    given = bound.arguments
    tokens, padding, weights = given["input"], given["padding_idx"], given["per_sample_weights"]
    if tokens.ndim != 2 or given["mode"] not in ("sum", "mean") or given["max_norm"] is not None:
        return F.embedding_bag(*arguments, **named)
    counted = torch.ones_like(tokens) if padding is None else (tokens != padding).to(tokens.dtype)
    shares = counted.unsqueeze(-1) if weights is None else (counted * weights).unsqueeze(-1)
    summed: Tensor = (F.embedding(tokens, given["weight"]) * shares).sum(1)
    return summed / counted.sum(1, keepdim=True).clamp(min=1) if given["mode"] == "mean" else summed


_RULES: dict[Callable[..., Any], Callable[..., Tensor]] = {
    torch.cdist: _distances,
    torch.prelu: _parametric_relu,
    F.instance_norm: _instance_norm,
    F.embedding_bag: _embedding_bag,
}
