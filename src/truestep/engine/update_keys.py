# SPDX-License-Identifier: Apache-2.0
"""The keys of the random numbers that a learner's updates draw: its own, whatever other learners do."""

import hashlib
from typing import Any

from truestep.core.random_streams import GOLDEN, MASK, OFFSET, mix_random_keys, random_key

_CLIP = 0xC11B
_DRAWS = 0xD4A5  # keeps the key of an update's draws apart from those of its micro-batches
_WINDOW = 256  # steps whose keys are computed at once, in the time of a few
_SMALL = 16  # larger numbers come again so rarely that computing a window would not pay


class UpdateKeys:
    """The keys of one learner's updates, by the step and by how many updates it had there.

    The learner that is made first has the run's seed, as one alone has; each other one a seed made of that and of its name.
    """

    def __init__(self, seed: int, place: int = 0, name: str = "", count: int = 0) -> None:
        self.place = place
        """How many learners were made before it. Of learners updated together, the one made first gives the keys."""
        self.count = count
        """Its updates since the cursor last moved."""
        self._seed = random_key(seed, _hash_name(name)) if place else seed
        self._windows: dict[tuple[int, int, int], tuple[int, list[int]]] = {}

    def micro_batch_key(self, step: int, micro_batch: int, rank: int) -> int:
        """Return the key of the random stream of one micro-batch of the current update."""
        if not step:  # nobody counts batches, or they begin just now
            return random_key(self._seed, 0, self.count, micro_batch, rank)
        others = self.count, micro_batch, rank
        first, keys = self._windows.get(others, (0, []))
        if not 0 <= step - first < len(keys):
            if self.count > _SMALL or micro_batch > _SMALL:
                return random_key(self._seed, step, *others)
            first, keys = self._windows[others] = step, _keys_of_steps(self._seed, step, others)
        return keys[step - first]

    def draws_key(self, step: int) -> int:
        """Return the key of what the current update draws for examples, the same on all ranks."""
        return random_key(self._seed, step, self.count, _DRAWS)

    def clip_key(self, step: int, name: str) -> int:
        """Return the key of what this learner's clip draws in the current update, however its batch was split."""
        return random_key(self._seed, step, self.count, _CLIP, _hash_name(name))


def _keys_of_steps(seed: int, step: int, others: tuple[int, ...]) -> list[int]:
    """Return `random_key(seed, step, *others)` of a window of steps from this one on."""
    import numpy as np

    def mix_number(key: Any, number: Any) -> Any:
        return mix_random_keys(key + number * np.uint64(GOLDEN) + np.uint64(OFFSET))

    # uint64 wraps around as the mask does; NumPy warns of it for scalars.
    with np.errstate(over="ignore"):
        keys = np.full(_WINDOW, random_key(seed), np.uint64)
        keys = mix_number(keys, np.uint64(step & MASK) + np.arange(_WINDOW, dtype=np.uint64))
        for number in others:
            keys = mix_number(keys, np.uint64(number & MASK))
    found: list[int] = keys.tolist()
    return found


def _hash_name(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")
