# SPDX-License-Identifier: Apache-2.0
"""Random generators of each kind behind one interface: set from a key, looked at, put back."""

import ctypes
import pickle
import random
import struct
from typing import Any, Protocol

import numpy as np
import torch

from truestep.core.random_streams import GOLDEN, MASK

_LOW = 0xFFFFFFFF  # torch's CPU generator uses no more than these bits of a seed
_MERSENNE_BYTES = 625 * 4  # 624 words and the position among them
_PCG_NUMBERS = struct.Struct("=4Q")  # state and increment, the lower halves first
_PCG_HALF = struct.Struct("=2I")  # whether half a number is kept for the next call, and which


class SampleGenerator(Protocol):
    """A generator that can be set from a 64-bit key, and put back afterwards."""

    def seed(self, key: int) -> None:
        """Set the generator from a 64-bit key."""

    def state(self) -> Any:
        """Return what `restore` and `moved_from` take."""

    def moved_from(self, state: Any) -> bool:
        """Return whether the generator is no longer where `state` says."""

    def restore(self, state: Any) -> None:
        """Put the generator back."""


class PythonSampleGenerator:
    """A `random.Random`."""

    def __init__(self, generator: random.Random) -> None:
        self._generator = generator
        self.seed = generator.seed
        self.restore = generator.setstate
        self.state = generator.getstate

    def moved_from(self, state: Any) -> bool:
        """Return whether the generator is no longer where `state` says."""
        # every draw moves the position, which stands last, or renews all 624 words: a few of them tell
        _, words, kept = self._generator.getstate()
        return bool(words[-8:] != state[1][-8:] or kept != state[2])


class TorchSampleGenerator:
    """A `torch.Generator`, on any device."""

    def __init__(self, generator: torch.Generator, bits: int = MASK >> 1) -> None:
        self._generator, self._bits = generator, bits

    def seed(self, key: int) -> None:
        """Set the generator from a 64-bit key."""
        self._generator.manual_seed(key & self._bits)

    def state(self) -> torch.Tensor:
        """Return what `restore` and `moved_from` take."""
        return self._generator.get_state()

    def moved_from(self, state: torch.Tensor) -> bool:
        """Return whether the generator is no longer where `state` says."""
        return self._generator.get_state().numpy().tobytes() != state.numpy().tobytes()

    def restore(self, state: torch.Tensor) -> None:
        """Put the generator back."""
        self._generator.set_state(state)


class MersenneSampleBits:
    """The state of an `MT19937`, read and written where numpy says that it lies.

    Its property `state` makes 624 Python numbers, which takes 50 µs; the same bytes are there in less than one.
    """

    def __init__(self, bits: Any) -> None:
        # held, since the address below is of its memory
        self._bits = bits
        address = bits.ctypes.state_address
        self._memory = (ctypes.c_char * _MERSENNE_BYTES).from_address(address)

    @classmethod
    def of(cls, bits: Any) -> "MersenneSampleBits | None":
        """Return the bits of an MT19937; None for other algorithms, or where numpy keeps them in another form."""
        if type(bits) is not np.random.MT19937:
            return None
        found, state = cls(bits), bits.state["state"]
        position = np.int32(state["pos"]).tobytes()
        return found if found.read() == state["key"].astype(np.uint32).tobytes() + position else None

    def read(self) -> bytes:
        """Return the whole state."""
        return self._memory.raw

    def write(self, state: bytes) -> None:
        """Set the whole state."""
        self._memory.raw = state


class PcgSampleBits:
    """The state of a `PCG64` or `PCG64DXSM`, written where numpy says that it lies: its property takes ten times as long."""

    def __init__(self, bits: Any) -> None:
        self._bits = bits  # held, since the addresses are of its memory
        address = bits.ctypes.state_address
        self._numbers = (ctypes.c_char * _PCG_NUMBERS.size).from_address(
            ctypes.c_void_p.from_address(address).value or 0
        )
        self._half = (ctypes.c_char * _PCG_HALF.size).from_address(address + ctypes.sizeof(ctypes.c_void_p))

    @classmethod
    def of(cls, bits: Any) -> "PcgSampleBits | None":
        """Return the bits of a PCG64; None for other algorithms, or where numpy keeps them in another form."""
        kind = type(bits)
        if kind not in (np.random.PCG64, np.random.PCG64DXSM):
            return None
        tried = kind(0)
        expected = {"bit_generator": kind.__name__, "state": {"state": 2 | 1 << 64, "inc": 5 | 3 << 64}}
        cls(tried)._write_numbers(2, 1, 5, 3)
        as_expected = tried.state == {**expected, "has_uint32": 0, "uinteger": 0}
        tried.state = {**expected, "has_uint32": 1, "uinteger": 7}
        return cls(bits) if as_expected and cls(tried)._half.raw == _PCG_HALF.pack(1, 7) else None

    def read(self) -> bytes:
        """Return the whole state."""
        return bytes(self._numbers.raw + self._half.raw)

    def write(self, state: bytes) -> None:
        """Set the whole state."""
        self._numbers.raw, self._half.raw = state[: _PCG_NUMBERS.size], state[_PCG_NUMBERS.size :]

    def seed(self, key: int) -> None:
        """Set it from a 64-bit key."""
        # (PCG's increment has to be odd)
        self._write_numbers(key * GOLDEN & MASK, key, (2 * key + 1) & MASK, key >> 63)

    def _write_numbers(self, *numbers: int) -> None:
        _PCG_NUMBERS.pack_into(self._numbers, 0, *numbers)
        _PCG_HALF.pack_into(self._half, 0, 0, 0)  # no half of a number is kept for the next call


class NumpySampleGenerator:
    """A `numpy.random.Generator`, over any bit generator."""

    def __init__(self, generator: np.random.Generator) -> None:
        self.bits: Any = generator.bit_generator
        self._memory = PcgSampleBits.of(self.bits) or MersenneSampleBits.of(self.bits)

    def seed(self, key: int) -> None:
        """Set the generator from a 64-bit key."""
        name = type(self.bits).__name__
        if isinstance(self._memory, PcgSampleBits):
            self._memory.seed(key)
        elif name in ("PCG64", "PCG64DXSM"):  # default_rng's
            state = {"state": key * GOLDEN & MASK | key << 64, "inc": 2 * key + 1}
            self.bits.state = {"bit_generator": name, "state": state, "has_uint32": 0, "uinteger": 0}
        elif self._memory is not None:
            self._memory.write(MersenneSampleBits(np.random.MT19937(key)).read())
        else:
            self.bits.state = type(self.bits)(key).state

    def state(self) -> Any:
        """Return what `restore` and `moved_from` take."""
        return self._memory.read() if self._memory is not None else self.bits.state

    def moved_from(self, state: Any) -> bool:
        """Return whether the generator is no longer where `state` says."""
        return (
            self._memory.read() != state
            if self._memory is not None
            else _has_different_pickle(self.bits.state, state)
        )

    def restore(self, state: Any) -> None:
        """Put the generator back."""
        if self._memory is not None:
            self._memory.write(state)
        else:
            self.bits.state = state


class LegacySampleGenerator:
    """A `numpy.random.RandomState`, numpy's global one too: bits, and the normal it may keep for the next call.

    Whether it keeps one is told by `get_state` alone. That is asked again only when the bits have moved.
    """

    def __init__(self, generator: np.random.RandomState) -> None:
        self._generator = generator
        self.bits: Any = None
        self._keeping_none: bytes | None = None  # bits beside which no normal was kept

    def _memory(self) -> MersenneSampleBits | None:
        """Return where the bits lie; another bit generator may have been put in the place of the last."""
        if self._generator._bit_generator is not self.bits:
            self.bits = self._generator._bit_generator
            self._mersenne = MersenneSampleBits.of(self.bits)
        return self._mersenne

    def seed(self, key: int) -> None:
        """Set the generator from a 64-bit key."""
        if self._memory() is not None:
            self.restore(MersenneSampleBits(np.random.MT19937(key)).read())
        else:
            self._generator.set_state({**type(self.bits)(key).state, "has_gauss": 0, "gauss": 0.0})

    def state(self) -> Any:
        """Return what `restore` and `moved_from` take."""
        memory = self._memory()
        bits = memory.read() if memory is not None else None
        if bits is not None and bits == self._keeping_none:
            return bits
        state = self._generator.get_state(legacy=False)
        if bits is None or state["has_gauss"]:
            return state
        self._keeping_none = bits
        return bits

    def moved_from(self, state: Any) -> bool:
        """Return whether the generator is no longer where `state` says."""
        memory = self._memory()
        if memory is not None and isinstance(state, bytes):
            return memory.read() != state
        return _has_different_pickle(self._generator.get_state(legacy=False), state)

    def restore(self, state: Any) -> None:
        """Put the generator back."""
        memory = self._memory()
        if memory is not None and isinstance(state, bytes):
            self._generator.seed(0)  # the public way to let go of a normal that is kept
            memory.write(state)
        else:
            self._generator.set_state(state)


class GlobalSampleGenerator(LegacySampleGenerator):
    """`numpy.random` itself."""

    def __init__(self) -> None:
        super().__init__(np.random.mtrand._rand)

    def seed(self, key: int) -> None:
        """Set the generator from a 64-bit key."""
        np.random.seed(key >> 32)  # torch gets the other 32 bits, into the same algorithm


def _has_different_pickle(one: Any, other: Any) -> bool:
    return bool(pickle.dumps(one) != pickle.dumps(other))


def global_sample_generators() -> list[SampleGenerator]:
    """Return the global generators of python, numpy and torch."""
    # not torch.manual_seed, which also visits every accelerator: 1 µs against 130 µs
    return [
        PythonSampleGenerator(random._inst),
        GlobalSampleGenerator(),
        TorchSampleGenerator(torch.default_generator, _LOW),
    ]


def sample_generator_of(value: Any) -> SampleGenerator | None:
    """Return the stream of an object that is a generator; None for any other object."""
    if isinstance(value, random.Random) and not isinstance(value, random.SystemRandom):
        return PythonSampleGenerator(value)
    if isinstance(value, torch.Generator):
        return TorchSampleGenerator(value)
    if isinstance(value, np.random.Generator):
        return NumpySampleGenerator(value)
    return LegacySampleGenerator(value) if isinstance(value, np.random.RandomState) else None
