# SPDX-License-Identifier: Apache-2.0
"""Takes a script that was written for a CUDA card to the CPU, where it can be experimented with."""

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._device import _device_constructors

from truestep.doctor.runtime.wrapping import WatchWrappers

_KINDS = ("Float", "Double", "Half", "BFloat16", "Long", "Int", "Short", "Char", "Byte", "Bool")
_DONE = (  # calls that need a card and give nothing
    *("synchronize", "empty_cache", "ipc_collect", "set_device", "init", "reset_peak_memory_stats"),
    *("reset_max_memory_allocated", "reset_max_memory_cached", "reset_accumulated_memory_stats"),
    *("set_per_process_memory_fraction", "set_stream"),
)
_NONE_USED = (
    *("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"),
    "current_device",
)
_OBJECTS = ("Stream", "Event", "current_stream", "default_stream", "stream", "device")
Call = Callable[..., Any]


class CudaStandIn(contextlib.nullcontext[None]):
    """Stands for a stream, an event or a device of the card: whatever is asked of it gives nothing."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()

    def __getattr__(self, name: str) -> Call:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: 0.0


@contextlib.contextmanager
def script_on_cpu() -> Iterator[None]:
    """Within this no card is seen, and what asks for one gets the CPU.

    A program that starts processes hands it on to them by the environment alone: they see no card, and `.cuda()` raises there.
    """
    before = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    wrappers = WatchWrappers()
    _redirect_to_cpu(wrappers)
    try:
        yield
    finally:
        wrappers.undo()
        if before is None:
            del os.environ["CUDA_VISIBLE_DEVICES"]
        else:
            os.environ["CUDA_VISIBLE_DEVICES"] = before


def _redirect_to_cpu(wrappers: WatchWrappers) -> None:
    for owner, name in (
        (torch.Tensor, "cuda"),
        (torch.Tensor, "pin_memory"),
        (torch.nn.Module, "cuda"),
    ):
        _replace_attribute(wrappers, owner, name, lambda self, *_, **__: self)
    _replace_attribute(wrappers, torch.Tensor, "to", _wrap_tensor_to(torch.Tensor.to))
    for function in _device_constructors():
        name = getattr(function, "__name__", "")
        if name and getattr(torch, name, None) is function:
            wrappers.function(torch, name, _wrap_constructor)
    _replace_attribute(wrappers, torch, "load", _wrap_load(torch.load))
    _stub_torch_cuda(wrappers)


def _stub_torch_cuda(wrappers: WatchWrappers) -> None:
    given: dict[str, Any] = {
        **{name: lambda *_, **__: None for name in _DONE},
        **{name: lambda *_, **__: 0 for name in _NONE_USED},
        **dict.fromkeys(_OBJECTS, CudaStandIn),
        **{f"{kind}Tensor": getattr(torch, f"{kind}Tensor") for kind in _KINDS},
        "get_device_name": lambda *_, **__: "CPU",
    }
    for name, value in given.items():
        if hasattr(torch.cuda, name):
            _replace_attribute(wrappers, torch.cuda, name, value)


def _replace_attribute(wrappers: WatchWrappers, owner: Any, name: str, value: Any) -> None:
    """Put something in the place of an attribute, which may be inherited."""
    is_own, before = name in vars(owner), getattr(owner, name)
    setattr(owner, name, value)
    wrappers.call(lambda: setattr(owner, name, before) if is_own else delattr(owner, name))


def _wrap_tensor_to(original: Call) -> Call:
    def to(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        return original(
            tensor, *map(_cpu_for_cuda, args), **{name: _cpu_for_cuda(each) for name, each in kwargs.items()}
        )

    return to


def _wrap_constructor(original: Call) -> Call:
    def make_on_cpu(*args: Any, **kwargs: Any) -> Any:
        if "device" in kwargs:
            kwargs["device"] = _cpu_for_cuda(kwargs["device"])
        return original(*args, **kwargs)

    return make_on_cpu


def _wrap_load(original: Call) -> Call:
    def load(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        place = _cpu_for_cuda(map_location)
        return original(f, "cpu" if place is None else place, *args, **kwargs)

    return load


def _cpu_for_cuda(value: Any) -> Any:
    if isinstance(value, torch.device):
        return torch.device("cpu") if value.type == "cuda" else value
    if isinstance(value, int) and not isinstance(value, bool):
        return "cpu"  # the number of a card
    return "cpu" if isinstance(value, str) and value.partition(":")[0] == "cuda" else value
