# SPDX-License-Identifier: Apache-2.0
"""The global random streams: start them at a seed, take their state, put it back."""

import random
from typing import Any

import numpy as np
import torch
from torch import Tensor

from truestep.core.random_streams import host_streams, set_host_streams

_WORD = 0xFFFFFFFF


def seed_streams(seed: int) -> tuple[str, ...]:
    """Start python's, NumPy's and torch's global streams at `seed`, those of every device included; return their names."""
    random.seed(seed)
    # NumPy takes words of 32 bits: several keep seeds apart that differ in their upper half alone
    np.random.seed(seed if seed <= _WORD else [seed & _WORD, seed >> 32])
    torch.manual_seed(seed)
    accelerator = torch.accelerator.current_accelerator()
    return ("python", "numpy", "torch", *([f"torch, every {accelerator.type} device"] if accelerator else []))


class Streams:
    """The state of all global streams at the moment when this was made."""

    def __init__(self) -> None:
        self._host = host_streams()
        self._torch = torch.get_rng_state()
        self._torch_seed = torch.initial_seed()
        accelerator = torch.accelerator.current_accelerator(check_available=True)
        self._module: Any = torch.get_device_module(accelerator) if accelerator else None
        self._devices: list[Tensor] | None = None
        if self._module is not None and getattr(self._module, "is_initialized", lambda: True)():
            # mps has one device, and only the functions for one
            read = getattr(self._module, "get_rng_state_all", lambda: [self._module.get_rng_state()])
            self._devices = [state.clone() for state in read()]

    def restore(self) -> None:
        """Put every stream back where it was."""
        set_host_streams(self._host)
        torch.set_rng_state(self._torch)
        if self._module is None:
            return
        if self._devices is None:
            # The device had not started, so there was no state to take: it would have started, or has
            # meanwhile, at the seed that torch.manual_seed gave to all devices.
            self._module.manual_seed_all(self._torch_seed)
        elif hasattr(self._module, "set_rng_state_all"):
            self._module.set_rng_state_all(self._devices)
        else:
            self._module.set_rng_state(self._devices[0])
