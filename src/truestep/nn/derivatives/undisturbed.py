# SPDX-License-Identifier: Apache-2.0
"""Calling a model once more, to look at its derivatives, without leaving a trace in it."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.module import register_module_forward_pre_hook

from truestep.core.errors import LossError
from truestep.core.modules import called_module, module_of
from truestep.nn.derivatives.rules import derivatives_in_every_mode


@contextmanager
def undisturbed_derivatives(function: object, device: torch.device, purpose: str | None) -> Iterator[None]:
    """Until the end of the block modules run eagerly, in full precision, and on copies of their buffers.

    Attention runs by plain matrix products, since the fused kernels can't be differentiated twice, and recurrent layers by
    torch's own kernels. The copies stay with the graph, so that a later backward finds what the forward wrote, and the
    buffers of the module are never written to.

    Raises:
        LossError: a layer mixes the examples of a batch, and `purpose` says what can't be had then; None allows it.
    """
    root = module_of(function)
    buffers = _Buffers()
    for part in root.modules() if root is not None else ():
        buffers.set_aside(part)

    def look(module: nn.Module, _: Any) -> None:
        if purpose is not None and norm_mixes_examples(module):
            raise LossError(_mixing_message(root, module, purpose))
        buffers.set_aside(module)

    with ExitStack() as stack:
        stack.callback(buffers.put_back)
        stack.callback(register_module_forward_pre_hook(look).remove)
        stack.enter_context(derivatives_without_compiled_code())
        stack.enter_context(_compiled_parts_are_quiet(called_module(function)))
        stack.enter_context(without_autocast(device))
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        stack.enter_context(derivatives_in_every_mode())
        yield


def without_autocast(device: torch.device) -> AbstractContextManager[object]:
    """Return a block without autocast, on devices that have none too ("meta")."""
    if torch.amp.is_autocast_available(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


def autocast_is_on(device: torch.device) -> bool:
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
def _compiled_parts_are_quiet(called: nn.Module | None) -> Iterator[None]:
    """Leave out torch's warning that a hook for all modules fires twice for a compiled one: ours only looks."""
    if called is None or not any("_orig_mod" in part._modules for part in called.modules()):
        yield  # changing filters makes Python repeat every warning, so only where there is need
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Using `torch.compile.module.` when there are global hooks")
        yield


def norm_mixes_examples(module: nn.Module) -> bool:
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


def full_precision_for_derivatives(value: Any) -> Any:
    """Return a half-precision tensor as float32, anything else as it is."""
    half = isinstance(value, Tensor) and value.dtype in (torch.float16, torch.bfloat16)
    return value.float() if half else value


def derivative_input_under_autocast(value: Any) -> Any:
    """Return a half-precision tensor as float32 where autocast is on, as autocast would cast it to anything; all else as it is."""
    return (
        full_precision_for_derivatives(value)
        if isinstance(value, Tensor) and autocast_is_on(value.device)
        else value
    )


class _Buffers:
    """Buffers of modules that have a copy in their place."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[nn.Module, dict[str, Tensor | None]]] = {}

    def set_aside(self, module: nn.Module) -> None:
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


def _mixing_message(root: nn.Module | None, layer: nn.Module, purpose: str) -> str:
    names = [repr(name) for name, part in root.named_modules() if norm_mixes_examples(part)] if root else []
    what = f"{', '.join(names[:6])} ({type(layer).__name__})" if names else repr(layer)
    return (
        f"Batch normalisation in training mode, {what}, mixes the examples of a batch: an output depends on all inputs, so "
        f"{purpose}. Use GroupNorm, LayerNorm or InstanceNorm there, or put those layers in evaluation mode."
    )
