# SPDX-License-Identifier: Apache-2.0
"""Choosing the device and the flags that decide whether it repeats itself."""

import os

import torch

from truestep.engine.context import Context
from truestep.errors import OptionError


def choose_device(device: str | torch.device) -> torch.device:
    """Return the device to train on; "auto" is the accelerator if there is one."""
    if device == "auto":
        if torch.accelerator.is_available():
            found = torch.accelerator.current_accelerator()
            assert found is not None
            return torch.device(found.type, torch.accelerator.current_device_index())
        return torch.device("cpu")
    try:
        chosen = torch.device(device)
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise OptionError(
            f'device={str(device)!r} can\'t be used here: {reason} Use "auto", or "cpu".'
        ) from error
    return chosen


def set_determinism(context: Context, *, deterministic: bool) -> None:
    """Set the flags that were asked for, and note the device and them with their reasons."""
    device = context.device
    reason = "an accelerator is there" if device.type != "cpu" else "torch finds no accelerator"
    context.choose("device", device, reason)
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS repeats itself only with this
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = False
        context.choose(
            "cudnn.benchmark",
            "off",
            "deterministic=True: the auto-tuner may pick another algorithm each time",
        )
    elif device.type != "cuda":
        context.choose("cudnn.benchmark", "unchanged", "no CUDA device")
