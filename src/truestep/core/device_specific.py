# SPDX-License-Identifier: Apache-2.0
"""What kinds of devices do differently, asked here alone: whether the host waits, copies, streams, memory, number types.

No card has run this; the tests run it on a stand-in (`tests/support/card.py`). What is not said of a kind it is not given: streams
and late copies are CUDA's (ROCm calls itself so), MPS has neither page-locked memory nor float64, and XPU is treated as MPS is.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from truestep.core.errors import OptionError

_RUNS_AHEAD = ("cuda",)
_WITHOUT_FLOAT64 = ("mps",)
_FUSED_ON = ("cpu", "cuda", "mps", "xpu")
_ADAGRAD_ON_CUDA = "2.13"  # torch 2.11 has the kernel, and its Adagrad refuses it there
_EXCHANGED = ("cpu", "cuda")


def is_cpu_device(device: torch.device) -> bool:
    """Whether what is computed there is at hand."""
    return device.type == "cpu"


def is_async_device(device: torch.device) -> bool:
    """Whether the host only queues work there: flags are read late, copies go through page-locked memory, streams have an order."""
    return device.type in _RUNS_AHEAD


def has_async_tensor(values: Iterable[Any]) -> bool:
    """Whether one of these is a tensor that the host would have to wait for."""
    return any(
        isinstance(each, Tensor) and not each.is_cpu and is_async_device(each.device) for each in values
    )


def to_float64(tensor: Tensor) -> Tensor:
    """Return a tensor in float64, on the host where its device has none: sums of MPS are made there, and waited for."""
    return (tensor.cpu() if tensor.device.type in _WITHOUT_FLOAT64 else tensor).to(torch.float64)


def has_fused_kernel(device: torch.device, optimizer: str) -> bool:
    """Whether torch has one kernel for a whole step of this optimizer there (`"AdamW"`): Adagrad's is not on every device."""
    if device.type not in _FUSED_ON:
        return False
    if optimizer == "Adagrad" and device.type == "cuda" and torch.__version__ < _ADAGRAD_ON_CUDA:
        return False
    name = f"aten::_fused_{optimizer.lower()}_"
    if not torch._C._dispatch_has_kernel(name):
        return True  # not torch's own: its signature says so
    return torch._C._dispatch_has_kernel_for_dispatch_key(name, device.type.upper())


# ---------------------------------------------------------------------- copies to the host


class AsyncHostCopy:
    """A tensor's copy on the host, which holds other values until it has arrived."""

    __slots__ = ("_event", "_host")

    def __init__(self, host: Tensor, event: torch.Event | None) -> None:
        """`event` comes after the copy in its stream; None: it is there already."""
        self._host, self._event = host, event

    def has_arrived(self) -> bool:
        """Whether `read` would not wait."""
        return self._event is None or self._event.query()

    def read(self) -> Tensor:
        """Return it when it has arrived."""
        if self._event is not None:
            self._event.synchronize()
            self._event = None
        return self._host


def send_to_host(tensor: Tensor) -> AsyncHostCopy:
    """Copy a tensor to the host, without waiting where the device runs ahead."""
    if tensor.is_cpu:
        return AsyncHostCopy(tensor, None)
    if not is_async_device(tensor.device):
        return AsyncHostCopy(tensor.cpu(), None)
    # into page-locked memory: a copy into any other waits for the device
    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor, non_blocking=True)
    return AsyncHostCopy(host, _record_event(tensor.device))


def copy_to_host_async(places: Sequence[Tensor], sources: Sequence[Tensor]) -> list[torch.Event]:
    """Copy tensors to the host, into page-locked memory without waiting; return what is to be waited for."""
    devices = async_devices(sources)
    torch._foreach_copy_(list(places), list(sources), non_blocking=bool(devices))
    # Events and not `synchronize`: who waits, waits for these copies, not for the steps that were queued after them.
    return [_record_event(device) for device in devices]


def async_devices(tensors: Iterable[Tensor]) -> set[torch.device]:
    """Return the devices that tensors are on and that run ahead of the host."""
    return {tensor.device for tensor in tensors if not tensor.is_cpu and is_async_device(tensor.device)}


def _record_event(device: torch.device) -> torch.Event:
    """Return an event behind all that was queued on a device: in its own current stream, which need not be the current device's."""
    event = torch.Event(device)
    event.record(torch.accelerator.current_stream(device))
    return event


def make_completion_query(tensor: Tensor) -> Callable[[], bool] | None:
    """Return what tells whether a tensor's device has done all that was queued; None where the host waits for it anyway."""
    if tensor.is_cpu or not is_async_device(tensor.device):
        return None
    return _record_event(tensor.device).query


# ---------------------------------------------------------------------- copies to the device


def send_to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor of the host to a device, without waiting where it runs ahead."""
    if not is_async_device(device):
        # (MPS may read from memory that is no longer the tensor's: the host waits)
        return tensor.to(device)
    return (tensor.pin_memory() if tensor.is_cpu else tensor).to(device, non_blocking=True)


def move_to_one_device(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return tensors on one device without waiting: on one that runs ahead, if there is one, from which nothing may come late."""
    device = next((each.device for each in tensors if has_async_tensor([each])), tensors[-1].device)
    return [each if each.device == device else send_to_device(each, device) for each in tensors]


def allows_non_blocking_copy(device: torch.device) -> bool:
    """Whether `.to(device, non_blocking=True)` is sound for memory that the caller lets go of: on MPS it is not."""
    return device.type != "mps"


class CopyStream:
    """A stream beside a device's current one, on which the next batch is copied while the present one is used."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.Stream(device)

    @contextmanager
    def copying(self) -> Iterator[None]:
        """Have copies within a `with` block go through this stream."""
        with self._stream:
            yield

    def hand_to_current_stream(self, tensors: Iterable[Tensor]) -> None:
        """Let the current stream wait for what was copied; the memory may be used anew only after that stream is done with it."""
        current = torch.accelerator.current_stream(self._device)
        current.wait_stream(self._stream)
        for tensor in tensors:
            if not tensor.is_cpu:
                tensor.record_stream(current)


# ---------------------------------------------------------------------- memory, and which card it is


def free_device_bytes(device: torch.device) -> int:
    """Return how much memory nobody holds there; only where the device runs ahead."""
    free: int = torch.accelerator.get_memory_info(device)[0]
    return free


def peak_device_bytes(device: torch.device) -> int | None:
    """Return the most memory that tensors have taken there, None where it is not counted."""
    return torch.accelerator.max_memory_allocated(device) if is_async_device(device) else None


def release_cached_memory(device: torch.device) -> None:
    """Give back what torch keeps of a device's memory: blocks cut for what did not fit."""
    if not is_cpu_device(device) and (empty := getattr(torch.get_device_module(device), "empty_cache", None)):
        empty()


def synchronize_device(device: torch.device) -> None:
    """Return when everything queued on a device is done."""
    if not is_cpu_device(device):
        torch.accelerator.synchronize(device)


def current_accelerator_device() -> torch.device | None:
    """Return the current device of this machine's accelerator, None where torch finds none."""
    if not torch.accelerator.is_available():
        return None
    found = torch.accelerator.current_accelerator()
    assert found is not None
    return torch.device(found.type, torch.accelerator.current_device_index())


def num_cuda_devices() -> int:
    """Return how many cards several processes can be given, one each."""
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def select_cuda_device(index: int) -> torch.device:
    """Make a card the current one, before any other call makes a context on the first."""
    torch.accelerator.set_device_index(index)
    return torch.device("cuda", index)


def gpu_name_and_versions(device: torch.device) -> dict[str, Any]:
    """Return what decides about bits on a card: its name, CUDA's and cuDNN's version."""
    if not has_cudnn_benchmark(device):
        return {}
    versions = {"cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}  # type: ignore[no-untyped-call]
    return {"gpu": torch.cuda.get_device_name(device), **versions}


def has_cudnn_benchmark(device: torch.device) -> bool:
    """Whether cuDNN computes there, which can measure its algorithms."""
    return device.type == "cuda"


def supports_collectives(device: torch.device) -> bool:
    """Whether torch's processes can exchange tensors of this device: gloo and NCCL carry none of MPS or XPU."""
    return device.type in _EXCHANGED


def collective_backend(device: torch.device) -> str:
    """Return what torch's processes are to talk through: tensors on the host always by gloo."""
    return "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"


def require_usable_device(device: str | torch.device) -> torch.device:
    """Return `device`, or raise an OptionError with torch's reason where nothing can be put on it."""
    try:
        chosen = torch.device(device)
        torch.empty(0, device=chosen)
    # torch without CUDA raises an AssertionError where a tensor is made; torch.device("cuda") itself succeeds anywhere
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        instead = (
            "torch calls it device='cuda', and 'auto', where that is an option, takes what there is"
            if device == "gpu"
            else f"{reason}. Use 'cpu', or 'auto' where that is an option"
        )
        raise OptionError(f"device={str(device)!r} can't be used here: {instead}.") from error
    return chosen
