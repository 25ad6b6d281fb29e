# SPDX-License-Identifier: Apache-2.0
"""The first message has one size, whichever learner an update is of, and small learners fit into it."""

import random

import torch
from hypothesis import given
from hypothesis import strategies as st

from truestep.engine.strategies.first_message import (
    LEAST_BYTES,
    MOST_BYTES,
    MOST_SPARE_BYTES,
    FirstMessage,
    communication_dtype,
    num_bucket_slots,
    num_head_numbers,
)

DTYPES = [torch.float32, torch.float64, torch.bfloat16]
USUAL_NUMBERS = 8  # that ride where nothing is measured


def needs(parameters, ranks):
    numbers = sum(each.numel() for each in parameters) + 1 + len(parameters)
    numbers += num_bucket_slots(USUAL_NUMBERS, ranks) + num_head_numbers(ranks)
    return numbers * communication_dtype(parameters[0].dtype).itemsize


@given(
    learners=st.lists(st.lists(st.integers(1, 1 << 17), min_size=1, max_size=6), min_size=1, max_size=4),
    dtype=st.sampled_from(DTYPES),
    ranks=st.sampled_from([2, 3, 16, 1024]),
)
def test_small_learners_fit_and_none_sends_much_more_than_it_needs(learners, dtype, ranks):
    made = [[torch.empty(size, dtype=dtype, device="meta") for size in sizes] for sizes in learners]
    found = set()
    for seed in range(3):
        message = FirstMessage(ranks)
        for parameters in random.Random(seed).sample(made, len(made)):
            message.add(parameters)
        assert message.has_one_type
        found.add(message.num_bytes)
    (num_bytes,) = found  # in whichever order they were made
    least = min(needs(parameters, ranks) for parameters in made)
    assert LEAST_BYTES <= num_bytes <= max(MOST_BYTES, LEAST_BYTES)
    assert num_bytes % 8 == 0
    room = num_bucket_slots(USUAL_NUMBERS, ranks) * 8  # for metrics, and what is rounded up
    if num_bytes > LEAST_BYTES:
        assert num_bytes - max(least, LEAST_BYTES) <= MOST_SPARE_BYTES + room + 4096
    if least + room <= MOST_BYTES:
        assert least <= num_bytes
