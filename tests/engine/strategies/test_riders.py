# SPDX-License-Identifier: Apache-2.0
"""Numbers that ride in a bucket of single precision come out as they went in."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from truestep.engine.strategies.first_message import num_bucket_slots, read_bucket_riders, write_bucket_riders

NUMBERS = (
    st.floats(-1e30, 1e30) | st.integers(-(2**53), 2**53).map(float) | st.sampled_from([math.inf, math.nan])
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(
    ranks=st.integers(1, 4).flatmap(
        lambda num: st.lists(st.lists(NUMBERS, min_size=num, max_size=num), min_size=1, max_size=5)
    )
)
def test_the_sum_over_ranks_is_that_of_double_precision(ranks, dtype):
    """Each number alone is exact but for what is too small for the type; what is summed is summed in double precision."""
    size, num_numbers = len(ranks), len(ranks[0])
    travelled = torch.zeros(num_bucket_slots(num_numbers, size), dtype=dtype)
    for rank, numbers in enumerate(ranks):
        own = torch.zeros_like(travelled)
        write_bucket_riders(torch.tensor(numbers, dtype=torch.float64), own, rank=rank, size=size)
        travelled += own  # as a collective does, in the type of the bucket
    expected = torch.tensor(ranks, dtype=torch.float64).sum(0)
    torch.testing.assert_close(
        read_bucket_riders(travelled, num_numbers, size=size), expected, rtol=0, atol=1e-44, equal_nan=True
    )
