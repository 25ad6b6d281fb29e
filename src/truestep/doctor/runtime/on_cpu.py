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


class NoCard(contextlib.nullcontext[None]):
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
    _take(wrappers)
    try:
        yield
    finally:
        wrappers.undo()
        if before is None:
            del os.environ["CUDA_VISIBLE_DEVICES"]
        else:
            os.environ["CUDA_VISIBLE_DEVICES"] = before


def _take(wrappers: WatchWrappers) -> None:
    for owner, name in (
        (torch.Tensor, "cuda"),
        (torch.Tensor, "pin_memory"),
        (torch.nn.Module, "cuda"),
    ):
        _set(wrappers, owner, name, lambda self, *_, **__: self)
    _set(wrappers, torch.Tensor, "to", _moving(torch.Tensor.to))
    for function in _device_constructors():
        name = getattr(function, "__name__", "")
        if name and getattr(torch, name, None) is function:
            wrappers.function(torch, name, _making)
    _set(wrappers, torch, "load", _loading(torch.load))
    _take_cuda(wrappers)


def _take_cuda(wrappers: WatchWrappers) -> None:
    given: dict[str, Any] = {
        **{name: lambda *_, **__: None for name in _DONE},
        **{name: lambda *_, **__: 0 for name in _NONE_USED},
        **dict.fromkeys(_OBJECTS, NoCard),
        **{f"{kind}Tensor": getattr(torch, f"{kind}Tensor") for kind in _KINDS},
        "get_device_name": lambda *_, **__: "CPU",
    }
    for name, value in given.items():
        if hasattr(torch.cuda, name):
            _set(wrappers, torch.cuda, name, value)


def _set(wrappers: WatchWrappers, owner: Any, name: str, value: Any) -> None:
    """Put something in the place of an attribute, which may be inherited."""
    is_own, before = name in vars(owner), getattr(owner, name)
    setattr(owner, name, value)
    wrappers.call(lambda: setattr(owner, name, before) if is_own else delattr(owner, name))


def _moving(original: Call) -> Call:
    def to(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        return original(tensor, *map(_on_cpu, args), **{name: _on_cpu(each) for name, each in kwargs.items()})

    return to


def _making(original: Call) -> Call:
    def make(*args: Any, **kwargs: Any) -> Any:
        if "device" in kwargs:
            kwargs["device"] = _on_cpu(kwargs["device"])
        return original(*args, **kwargs)

    return make


def _loading(original: Call) -> Call:
    def load(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        place = _on_cpu(map_location)
        return original(f, "cpu" if place is None else place, *args, **kwargs)

    return load


def _on_cpu(value: Any) -> Any:
    if isinstance(value, torch.device):
        return torch.device("cpu") if value.type == "cuda" else value
    if isinstance(value, int) and not isinstance(value, bool):
        return "cpu"  # the number of a card
    return "cpu" if isinstance(value, str) and value.partition(":")[0] == "cuda" else value
