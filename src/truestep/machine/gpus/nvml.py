# SPDX-License-Identifier: Apache-2.0
"""A session with NVML (NVIDIA's management library) in which no question raises.

What a card, a driver or a permission does not answer is a reason, never an exception: on real
machines "Not Supported" is the usual answer for half of the fields.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any

NO_FUNCTION = "Function Not Found"  # the driver is older than the function
LOST = ("GPU is lost", "GPU requires restart")

_REMEDIES = {
    "LIBRARY_NOT_FOUND": "libnvidia-ml.so.1 is not there: no NVIDIA driver is installed, or the container "
    "was started without access to the GPUs (docker run --gpus all)",
    "DRIVER_NOT_LOADED": "the NVIDIA kernel module is not loaded: `modprobe nvidia` as root",
    "LIB_RM_VERSION_MISMATCH": "the driver's library and its kernel module have different versions, as after "
    "an update without a restart: restart the machine or reload the module",
    "NO_PERMISSION": "this user may not talk to the driver: look at the rights of /dev/nvidia*",
    "GPU_IS_LOST": "a card has fallen off the bus: look for Xid in the kernel's log, and restart the machine",
}


class NvmlUnavailable(Exception):  # noqa: N818  a state of the machine that callers report, no error
    """NVML can't be asked at all; the message says why and what helps."""


@dataclass(frozen=True)
class NvmlAnswer:
    """What one question gave: a value, or the reason why there is none."""

    value: Any = None
    reason: str | None = None


def nvml_field(*forms: tuple[Any, ...], convert: Callable[[Any], Any] = lambda value: value) -> Any:
    """Return a field of a data class that NVML fills.

    Args:
        forms: functions with what they take after the handle; the first that answers counts, so the newest stands first.
        convert: makes the field's value of the answer; None where the driver does not say.
    """
    return field(default=None, metadata={"forms": forms, "convert": convert})


class NvmlSession:
    """An open session; `ask` calls one function of the binding."""

    def __init__(self, binding: Any) -> None:
        self.binding = binding

    def ask(self, function: str, *arguments: Any) -> NvmlAnswer:
        """Call `function`; an error of NVML, or a function the binding or driver lacks, is a reason."""
        call = getattr(self.binding, function, None)
        if call is None:
            return NvmlAnswer(reason="the installed nvidia-ml-py is too old")
        try:
            return NvmlAnswer(call(*arguments))
        except self.binding.NVMLError as error:
            return NvmlAnswer(reason=str(error).rstrip("."))
        except UnicodeDecodeError:
            return NvmlAnswer(reason="the driver's text is not UTF-8")

    def ask_first(self, *questions: tuple[Any, ...]) -> NvmlAnswer:
        """Ask in turn until one answers; when none does, the card's own reason stands, if it gave one."""
        answers = []
        for function, *arguments in questions:
            answers.append(self.ask(function, *arguments))
            if answers[-1].reason is None:
                return answers[-1]
        return next((answer for answer in answers if answer.reason != NO_FUNCTION), answers[-1])

    def read_fields(self, kind: type[Any], handle: Any) -> dict[str, NvmlAnswer]:
        """Return what is told of each field that NVML fills, or why it is not; a question of several fields is asked once."""
        ask = cache(lambda *forms: self.ask_first(*((form[0], handle, *form[1:]) for form in forms)))
        found = {}
        for each in fields(kind):
            if forms := each.metadata.get("forms"):
                answer = ask(*forms)
                value = None if answer.reason else each.metadata["convert"](answer.value)
                untold = answer.reason or ("the driver does not say" if value is None else None)
                found[each.name] = NvmlAnswer(value, untold)
        return found


def _import_pynvml() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a machine with the deprecated `pynvml` package warns here
        try:
            import pynvml
        except Exception as error:
            raise NvmlUnavailable(f"nvidia-ml-py is not there ({error}): pip install nvidia-ml-py") from error
    return pynvml


def _nvml_error_text(binding: Any, error: Exception) -> str:
    for name, remedy in _REMEDIES.items():
        if getattr(error, "value", None) == getattr(binding, f"NVML_ERROR_{name}", object()):
            return remedy
    return f"NVML does not start: {error}"


@contextmanager
def keep_nvml_started() -> Iterator[None]:
    """Keep NVML started over several sessions: without persistence mode each start takes seconds a card."""
    with ExitStack() as stack:
        with suppress(NvmlUnavailable):
            stack.enter_context(nvml_session())
        yield


@contextmanager
def nvml_session() -> Iterator[NvmlSession]:
    """Open NVML for the length of a block; raises `NvmlUnavailable` where there is none."""
    binding = _import_pynvml()
    try:
        binding.nvmlInit()
    except binding.NVMLError as error:
        raise NvmlUnavailable(_nvml_error_text(binding, error)) from error
    except OSError as error:
        raise NvmlUnavailable(f"the driver's library can't be loaded: {error}") from error
    try:
        yield NvmlSession(binding)
    finally:
        with suppress(binding.NVMLError):
            binding.nvmlShutdown()
