# SPDX-License-Identifier: Apache-2.0
"""Notes whether random numbers were drawn, from whatever generator of torch, or from the streams of Python and NumPy."""

import random
from typing import Any, Self

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

_RANDOM = torch.Tag.nondeterministic_seeded


class RandomDrawDetector(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within it each operation is looked at."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._operation = False
        self._before: tuple[Any, ...] = ()

    def __enter__(self) -> Self:
        self._before = _host_rng_states()
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._operation = self._operation or _RANDOM in func.tags
        return func(*args, **(kwargs or {}))

    @property
    def has_draws(self) -> bool:
        """Whether there were draws since it was entered."""
        return self._operation or _host_rng_states() != self._before


def _host_rng_states() -> tuple[Any, ...]:
    name, keys, *rest = np.random.get_state()
    return (random.getstate(), name, np.asarray(keys).tobytes(), *rest)
