# SPDX-License-Identifier: Apache-2.0
"""Keys are the same whether they are computed one by one or a window of steps at once."""

import pytest

from truestep.core.random_streams import random_key
from truestep.engine.update_keys import UpdateKeys


@pytest.mark.parametrize("seed", [0, 7, -3, 2**63, 2**64 - 1])
def test_windows_of_steps_have_the_keys_of_single_steps(seed):
    keys = UpdateKeys(seed)
    for step in [0, 1, 2, 255, 256, 257, 258, 800, 799, 5, 2**40, 2**40 + 255, 2**40 + 256]:
        for count, part, rank in [(1, 0, 0), (2, 3, 1), (17, 0, 0), (1, 100, 5)]:
            keys.count = count
            assert keys.micro_batch_key(step, part, rank) == random_key(seed, step, count, part, rank)
