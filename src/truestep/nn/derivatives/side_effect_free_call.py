# SPDX-License-Identifier: Apache-2.0
"""Calling a model once more, to look at its derivatives, without leaving a trace in it."""

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from inspect import signature
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode

from truestep.core.errors import LossError
from truestep.core.module_inspection import called_module, original_module


@contextmanager
def preserve_modules_while_deriving(
    function: object, device: torch.device, purpose: str | None
) -> Iterator[None]:
    """Until the end of the block modules run eagerly, in full precision, and on copies of their buffers.

    Attention runs by plain matrix products, since the fused kernels can't be differentiated twice, and recurrent layers by
    torch's own kernels. The copies stay with the graph, so that a later backward finds what the forward wrote, and the
    buffers of the module are never written to.

    Raises:
        LossError: a layer mixes the examples of a batch, and `purpose` says what can't be had then; None allows it.
    """
    root = original_module(function)
    buffers = _BufferCopies()
    for part in root.modules() if root is not None else ():
        buffers.replace_buffers_by_copies(part)

    def prepare_module(module: nn.Module, _: Any) -> None:
        if purpose is not None and is_batch_norm_mixing_examples(module):
            raise LossError(_batch_norm_mixing_message(root, module, purpose))
        buffers.replace_buffers_by_copies(module)

    with ExitStack() as stack:
        stack.callback(buffers.put_back)
        stack.callback(register_module_forward_pre_hook(prepare_module).remove)
        stack.enter_context(derivatives_without_compiled_code())
        stack.enter_context(_ignore_compiled_hook_warning(called_module(function)))
        stack.enter_context(autocast_disabled(device))
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        stack.enter_context(enable_all_derivative_modes())
        yield


def autocast_disabled(device: torch.device) -> AbstractContextManager[object]:
    """Return a block without autocast, on devices that have none too ("meta")."""
    if torch.amp.is_autocast_available(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


def is_autocast_on(device: torch.device) -> bool:
    """Whether autocast is on for a device."""
    return torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type)


@contextmanager
def derivatives_without_compiled_code() -> Iterator[None]:
    """Until the end of the block nothing that was compiled runs compiled: such code skips hooks and differentiates once."""
    if "torch._dynamo" not in sys.modules:  # nothing can have been compiled; the import takes seconds
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield


@contextmanager
def _ignore_compiled_hook_warning(called: nn.Module | None) -> Iterator[None]:
    """Leave out torch's warning that a hook for all modules fires twice for a compiled one: ours only looks."""
    if called is None or not any("_orig_mod" in part._modules for part in called.modules()):
        yield  # changing filters makes Python repeat every warning, so only where there is need
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Using `torch.compile.module.` when there are global hooks")
        yield


def is_batch_norm_mixing_examples(module: nn.Module) -> bool:
    """Whether the layer's output for one example depends on the others: batch normalisation on the batch's statistics."""
    return isinstance(module, _BatchNorm) and (module.training or module.running_mean is None)


def check_differentiable(start: str, value: object, instead: str, *, complex_too: bool) -> None:
    """Raise a LossError that begins with `start` unless torch differentiates a value: a tensor of dense floating-point numbers."""
    what = type(value).__name__
    if isinstance(value, Tensor):
        is_dense = value.layout is torch.strided and not value.is_quantized
        is_real = value.is_floating_point() and value.dtype.itemsize > 1
        if is_dense and (is_real or (complex_too and value.is_complex())):
            return
        what = f"{value.dtype}" if value.layout is torch.strided else f"{value.dtype} ({value.layout})"
    raise LossError(f"{start} {what}, which has no derivative here. {instead}")


def half_to_float32(value: Any) -> Any:
    """Return a half-precision tensor as float32, anything else as it is."""
    half = isinstance(value, Tensor) and value.dtype in (torch.float16, torch.bfloat16)
    return value.float() if half else value


def half_to_float32_under_autocast(value: Any) -> Any:
    """Return a half-precision tensor as float32 where autocast is on, as autocast would cast it to anything; all else as it is."""
    if isinstance(value, Tensor) and is_autocast_on(value.device):
        return half_to_float32(value)
    return value


class _BufferCopies:
    """Buffers of modules that have a copy in their place."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[nn.Module, dict[str, Tensor | None]]] = {}

    def replace_buffers_by_copies(self, module: nn.Module) -> None:
        """Let the module work on copies of its own buffers."""
        if id(module) in self._kept or not module._buffers:
            return
        self._kept[id(module)] = (module, dict(module._buffers))
        for name, buffer in module._buffers.items():
            module._buffers[name] = None if buffer is None else buffer.clone()

    def put_back(self) -> None:
        """Give every module its own buffers again."""
        for module, buffers in self._kept.values():
            module._buffers.update(buffers)


def _batch_norm_mixing_message(root: nn.Module | None, layer: nn.Module, purpose: str) -> str:
    names = (
        [repr(name) for name, part in root.named_modules() if is_batch_norm_mixing_examples(part)]
        if root
        else []
    )
    what = f"{', '.join(names[:6])} ({type(layer).__name__})" if names else repr(layer)
    return (
        f"Batch normalisation in training mode, {what}, mixes the examples of a batch: an output depends on all inputs, so "
        f"{purpose}. Use GroupNorm, LayerNorm or InstanceNorm there, or put those layers in evaluation mode."
    )


_RECURRENT = frozenset({torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu})
_CELLS = frozenset({torch.lstm_cell, torch.gru_cell, torch.rnn_tanh_cell, torch.rnn_relu_cell})


@contextmanager
def enable_all_derivative_modes() -> Iterator[None]:
    """Until the end of the block what runs has right derivatives in forward and reverse mode, of any order, and in batches."""
    before = torch._C._is_fwd_grad_enabled()
    try:
        with _ReplacementFunctionMode():
            yield
    finally:
        torch._C._set_fwd_grad_enabled(before)


class _ReplacementFunctionMode(TorchFunctionMode):
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
                return func(*_expand_initial_rnn_state(args), **kwargs)
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


def _expand_initial_rnn_state(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
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


def _differentiable_cdist(x1: Tensor, x2: Tensor, p: float = 2.0, *further: Any, **named: Any) -> Tensor:
    """As `torch.cdist`, which has no forward and no second derivative, and whose batched derivative is wrong."""
    alike = x1.shape[-1:] == x2.shape[-1:] and x1.dtype == x2.dtype and min(x1.ndim, x2.ndim) > 1
    # Otherwise torch raises, or counts what differs (p=0), whose derivative is 0 everywhere.
    if not (alike and isinstance(p, int | float) and p > 0):
        constant: Tensor = torch.cdist(x1.detach(), x2.detach(), p, *further, **named)
        return constant
    distances: Tensor = torch.linalg.vector_norm(x1.unsqueeze(-2) - x2.unsqueeze(-3), ord=p, dim=-1)
    return distances


def _differentiable_prelu(values: Tensor, weight: Tensor) -> Tensor:
    """As `torch.prelu`, whose derivative by the weight fails for many vectors at once."""
    channels = values.shape[1] if values.ndim > 1 else 1
    if not isinstance(weight, Tensor) or weight.ndim > 1 or weight.numel() not in (1, channels):
        return torch.prelu(values, weight)  # which says what is wrong
    slopes = weight.reshape(-1, *[1] * (values.ndim - 2)) if weight.numel() > 1 else weight.reshape(())
    # What lies above has no part in the slope's derivative.
    below = torch.where(values > 0, 0.0, values)
    return torch.where(values > 0, values, slopes * below)


def _instance_norm_without_buffers(*arguments: Any, **named: Any) -> Tensor:
    """As `F.instance_norm`, without the running statistics that it only writes to."""
    given = signature(F.instance_norm).bind(*arguments, **named).arguments
    if given.get("use_input_stats", True):
        given |= {"running_mean": None, "running_var": None}
    return F.instance_norm(**given)


def _differentiable_embedding_bag(*arguments: Any, **named: Any) -> Tensor:
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
    torch.cdist: _differentiable_cdist,
    torch.prelu: _differentiable_prelu,
    F.instance_norm: _instance_norm_without_buffers,
    F.embedding_bag: _differentiable_embedding_bag,
}
