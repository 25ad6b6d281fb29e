# SPDX-License-Identifier: Apache-2.0
"""Keys: every random choice of this folder is a hash of what it is for, never a draw from a stream."""

import hashlib

import numpy as np
import numpy.typing as npt

Keys = npt.NDArray[np.uint64]

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15  # 2⁶⁴ divided by the golden ratio: neighbours end far apart
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_SHIFTS = np.uint64(30), np.uint64(27), np.uint64(31)


def derive_sample_key(*words: int | str) -> int:
    """Return a 64-bit key for `words`; different words give unrelated keys, on every machine alike."""
    digest = hashlib.blake2b(repr(words).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def mix_sample_keys(values: Keys) -> Keys:
    """Return each value hashed to 64 bits (the finaliser of SplitMix64, Steele et al. 2014)."""
    mixed = (values ^ (values >> _SHIFTS[0])) * _FIRST
    mixed = (mixed ^ (mixed >> _SHIFTS[1])) * _SECOND
    return mixed ^ (mixed >> _SHIFTS[2])


def sample_keys_at(key: int, positions: npt.NDArray[np.int64] | Keys) -> Keys:
    """Return one key per position: a counter-based generator entered at `positions`."""
    # from 1 on, and hashed twice with the key: `mix_sample_keys` takes 0 to 0
    counters = positions.astype(np.uint64) + np.uint64(1)
    return mix_sample_keys(mix_sample_keys(counters * np.uint64(GOLDEN) + np.uint64(key)) ^ np.uint64(key))


def uniform_from_sample_keys(keys: Keys) -> npt.NDArray[np.float64]:
    """Return each key as a number in [0, 1) with 53 random bits."""
    return (keys >> np.uint64(11)).astype(np.float64) * 2.0**-53
