# SPDX-License-Identifier: Apache-2.0
"""Random streams keyed by where training stands, with the caller's own stream put back."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import torch

from truestep.core.errors import OptionError

# SplitMix64's multipliers (Steele, Lea and Flood 2014). The offset is added since the finaliser takes 0 to 0.
MASK = (1 << 64) - 1
# 2⁶⁴ divided by the golden ratio: neighbours end far apart
GOLDEN, OFFSET = 0x9E3779B97F4A7C15, 0x632BE59BD9B4E019
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def random_key(*numbers: int) -> int:
    """Return a 64-bit key that depends on every number and on their order (SplitMix64's finaliser, chained)."""
    key = GOLDEN
    for number in numbers:
        key = (key + (number & MASK) * GOLDEN + OFFSET) & MASK
        key = ((key ^ (key >> 30)) * _FIRST) & MASK
        key = ((key ^ (key >> 27)) * _SECOND) & MASK
        key ^= key >> 31
    return key


def mix_random_keys(values: Any) -> Any:
    """Return each of NumPy's 64-bit numbers hashed: SplitMix64's finaliser, as in `random_key`."""
    import numpy as np

    values = (values ^ (values >> np.uint64(30))) * np.uint64(_FIRST)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(_SECOND)
    return values ^ (values >> np.uint64(31))


class RandomStream(NamedTuple):
    """A stream of torch's: the host's, or a device's own."""

    save: Callable[[], Any]
    """Returns its state."""
    set: Callable[[int], object]
    """Starts it at a key. `torch.manual_seed` visits every accelerator: 130 µs where this takes 1 (docs/log.md)."""
    restore: Callable[[Any], object]
    """Puts back what `save` returned."""


_HOST = RandomStream(
    torch.default_generator.get_state, torch.default_generator.manual_seed, torch.default_generator.set_state
)
_WITHOUT_OWN = ("cpu", "meta")


def device_random_stream(device: torch.device) -> RandomStream | None:
    """Return the stream that a device draws from by itself, None where it draws from the host's.

    Raises an OptionError for a device whose stream can't be reached: what is drawn there could be neither keyed nor saved.
    """
    if device.type in _WITHOUT_OWN:
        return None
    try:
        module: Any = torch.get_device_module(device)
        if not hasattr(module, "default_generators"):  # one device and its functions: MPS
            return RandomStream(module.get_rng_state, module.manual_seed, module.set_rng_state)
        module.init()  # before that there is no generator of a card: CUDA, XPU
        # "cuda" alone means the current card, which need not be the first.
        own = module.default_generators[module.current_device() if device.index is None else device.index]
        return RandomStream(own.get_state, own.manual_seed, own.set_state)
    except (AttributeError, RuntimeError) as error:
        raise OptionError(
            f"device={str(device)!r} draws random numbers from a stream of its own, and torch.{device.type} has no way to set it "
            f"({error}): dropout there could be neither repeated nor resumed. Use another device."
        ) from error


class KeyedRandom(RandomStream):
    """Sets torch's streams (the host's, and a device's own) to a key, and puts the caller's back afterwards."""

    @classmethod
    def of(cls, device: torch.device) -> "KeyedRandom":
        """Return what keys the streams of a device; of one stream these are its own methods, with no function in between."""
        host, own = _HOST, device_random_stream(device)
        if own is None:
            return cls(*host)
        return cls(
            lambda: (host.save(), own.save()),
            lambda key: (host.set(key), own.set(key)),
            lambda states: (host.restore(states[0]), own.restore(states[1])),
        )


@contextmanager
def preserve_torch_rng(tensors: Iterable[torch.Tensor] = ()) -> Iterator[None]:
    """Put torch's streams back at the end of a `with` block: the host's, and those of the devices that tensors are on."""
    streams = [_HOST]
    for device in {tensor.device for tensor in tensors}:
        with suppress(OptionError):  # nothing can be put back there
            own = device_random_stream(device)
            streams += [] if own is None else [own]
    states = [stream.save() for stream in streams]
    try:
        yield
    finally:
        for stream, state in zip(streams, states, strict=True):
            stream.restore(state)


def host_rng_states() -> tuple[Any, Any]:
    """Return the states of python's and of NumPy's global stream."""
    import random

    import numpy as np

    return random.getstate(), np.random.get_state()


def set_host_rng_states(states: tuple[Any, Any]) -> None:
    """Put back what `host_rng_states` returned."""
    import random

    import numpy as np

    random.setstate(states[0])
    np.random.set_state(states[1])


@contextmanager
def preserve_host_rng() -> Iterator[None]:
    """Put python's and NumPy's global stream back at the end of a `with` block."""
    states = host_rng_states()
    try:
        yield
    finally:
        set_host_rng_states(states)
