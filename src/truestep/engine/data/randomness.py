# SPDX-License-Identifier: Apache-2.0
"""The randomness of a sample: every generator it may draw from is set from (seed, epoch, position)."""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import torch

from truestep.engine.data.generators import find_generators
from truestep.engine.data.keys import GOLDEN, MASK, derive, keyed, mix
from truestep.engine.randomness import host_streams, set_host_streams
from truestep.errors import DataError

_LOW = 0xFFFFFFFF


class Stream(Protocol):
    """A generator that can be set from a 64-bit key, and put back afterwards."""

    def seed(self, key: int) -> None: ...  # noqa: D102
    def state(self) -> Any: ...  # noqa: D102
    def restore(self, state: Any) -> None: ...  # noqa: D102


class SampleRandomness:
    """Sets python's, numpy's and torch's global generators, and those found inside a data set, per sample."""

    def __init__(self, seed: int, dataset: Any) -> None:
        self._seed = seed
        self.found = find_generators(dataset)
        self._streams: list[Stream] = [_Global(), *self.found.values()]
        self._seeders = [stream.seed for stream in self._streams]

    def keys(self, use: str, epoch: int, position: int, count: int = 1) -> list[list[int]]:
        """Return the keys of `count` samples from `position` on: one per sample and generator.

        `use` is what draws ("sample", "collate"): different uses draw unrelated numbers.
        """
        samples = keyed(derive(self._seed, use, epoch), np.arange(position, position + count))
        streams = np.arange(len(self._streams), dtype=np.uint64) * np.uint64(GOLDEN)
        rows: list[list[int]] = mix(samples[:, None] + streams).tolist()
        return rows

    def set(self, keys: list[int]) -> None:
        """Set every generator for the sample whose keys these are."""
        for seed, key in zip(self._seeders, keys, strict=True):
            seed(key)
        _current.key, _current.generator = keys[0], None

    @contextmanager
    def borrowed(self) -> Iterator[None]:
        """Put every generator back to what it was before the block."""
        states = [stream.state() for stream in self._streams]
        try:
            yield
        finally:
            for stream, state in zip(self._streams, states, strict=True):
                stream.restore(state)
            _current.key = None


class _Global:
    """The global generators of python, numpy and torch."""

    def seed(self, key: int) -> None:
        random.seed(key)
        # both of these take 32 bits into the same algorithm, so each gets bits of its own
        np.random.seed(key >> 32)
        # not torch.manual_seed, which also visits every accelerator: 1 µs against 130 µs
        torch.default_generator.manual_seed(key & _LOW)

    def state(self) -> Any:
        return host_streams(), torch.default_generator.get_state()

    def restore(self, state: Any) -> None:
        set_host_streams(state[0])
        torch.default_generator.set_state(state[1])


class _Current(threading.local):
    key: int | None = None
    generator: "np.random.Generator | None" = None


_current = _Current()


def sample_rng() -> "np.random.Generator":
    """Return the generator of the sample that is being loaded: a function of (seed, epoch, position) alone.

    Call it inside `__getitem__`, a transform or an iterable data set; it goes on drawing where the same
    sample drew before. Raises `DataError` anywhere else.
    """
    if _current.key is None:
        raise DataError(
            "sample_rng() was called while no sample is being loaded in this thread, so there is no position "
            "to derive its numbers from. Call it inside __getitem__ or a transform, and pass the generator "
            "on to threads; elsewhere use numpy.random.default_rng(seed)."
        )
    if _current.generator is None:
        bits = np.random.Philox(key=(_current.key * GOLDEN + 1) & MASK)
        _current.generator = np.random.Generator(bits)
    return _current.generator
