# SPDX-License-Identifier: Apache-2.0
"""Keys: every random choice of this folder is a hash of what it is for, never a draw from a stream."""

import hashlib

import numpy as np
import numpy.typing as npt

from truestep.core.random_streams import GOLDEN, mix_random_keys

Keys = npt.NDArray[np.uint64]


def derive_sample_key(*words: int | str) -> int:
    """Return a 64-bit key for `words`; different words give unrelated keys, on every machine alike."""
    digest = hashlib.blake2b(repr(words).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def sample_keys_at(key: int, positions: npt.NDArray[np.int64] | Keys) -> Keys:
    """Return one key per position: a counter-based generator entered at `positions`."""
    # from 1 on, and hashed twice with the key: `mix_random_keys` takes 0 to 0
    counters = positions.astype(np.uint64) + np.uint64(1)
    once: Keys = mix_random_keys(counters * np.uint64(GOLDEN) + np.uint64(key))
    return mix_random_keys(once ^ np.uint64(key))  # type: ignore[no-any-return]


def uniform_from_sample_keys(keys: Keys) -> npt.NDArray[np.float64]:
    """Return each key as a number in [0, 1) with 53 random bits."""
    return (keys >> np.uint64(11)).astype(np.float64) * 2.0**-53
