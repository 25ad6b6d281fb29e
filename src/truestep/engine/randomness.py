# SPDX-License-Identifier: Apache-2.0
"""Random streams keyed by where training stands, with the caller's own stream put back."""

from typing import Any

import torch

_MASK = (1 << 64) - 1


def key_of(*numbers: int) -> int:
    """Return a 64-bit key that depends on every number and on their order (SplitMix64's finaliser, chained)."""
    key = 0x9E3779B97F4A7C15
    for number in numbers:
        key = (key + (number & _MASK) * 0x9E3779B97F4A7C15 + 0x632BE59BD9B4E019) & _MASK
        key = ((key ^ (key >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        key = ((key ^ (key >> 27)) * 0x94D049BB133111EB) & _MASK
        key ^= key >> 31
    return key


class KeyedRandom:
    """Sets torch's streams (CPU, and `device`'s own) to a key, and puts the caller's back afterwards."""

    def __init__(self, device: torch.device) -> None:
        self._generators: list[torch.Generator] = [torch.default_generator]
        if device.type == "cuda":
            torch.cuda.init()  # type: ignore[no-untyped-call]
            self._generators.append(torch.cuda.default_generators[device.index or 0])

    def save(self) -> list[torch.Tensor]:
        """Return the caller's streams as they are."""
        return [generator.get_state() for generator in self._generators]

    def set(self, key: int) -> None:
        """Start all streams at `key`."""
        for generator in self._generators:
            generator.manual_seed(key)

    def restore(self, states: list[torch.Tensor]) -> None:
        """Put back what `save` returned."""
        for generator, state in zip(self._generators, states, strict=True):
            generator.set_state(state)


def host_streams() -> tuple[Any, Any]:
    """Return the states of python's and of NumPy's global stream."""
    import random

    import numpy as np

    return random.getstate(), np.random.get_state()


def set_host_streams(states: tuple[Any, Any]) -> None:
    """Put back what `host_streams` returned."""
    import random

    import numpy as np

    random.setstate(states[0])
    np.random.set_state(states[1])
