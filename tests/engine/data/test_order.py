# SPDX-License-Identifier: Apache-2.0
"""The Order law: the order is a function of (seed, epoch) alone; entered anywhere, it goes on the same."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from truestep.engine.data import DataOptions, open_source


def order_of(source, epoch=0, start=0):
    return [batch.tolist() for batch in source.batches(epoch, start)]


@given(
    num_samples=st.integers(1, 300),
    batch_size=st.integers(1, 310),
    seed=st.integers(0, 2**70),
    epoch=st.integers(0, 5),
    data=st.data(),
)
def test_every_sample_once_an_epoch_and_the_same_from_any_start(num_samples, batch_size, seed, epoch, data):
    options = DataOptions(batch_size=batch_size, shuffle=True)
    source = open_source(torch.arange(num_samples), options, seed=seed)
    order = order_of(source, epoch)
    assert list(range(num_samples)) == sorted(index for batch in order for index in batch)
    assert len(source) == len(order)
    assert {batch_size} >= {len(batch) for batch in order[:-1]}
    start = data.draw(st.integers(0, len(source)))
    again = open_source(torch.arange(num_samples), options, seed=seed)
    assert order[start:] == order_of(again, epoch, start)


def test_epochs_and_seeds_have_orders_of_their_own():
    def order(seed, epoch):
        source = open_source(torch.arange(64), DataOptions(batch_size=64, shuffle=True), seed=seed)
        return tuple(order_of(source, epoch)[0])

    assert len({order(seed, epoch) for seed in range(8) for epoch in range(8)}) == 64


def test_the_global_generators_are_left_alone():
    torch.manual_seed(1)
    np.random.seed(1)
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()
    order_of(open_source(torch.arange(9), DataOptions(batch_size=2, shuffle=True), seed=0))
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == np.random.get_state()[1].tolist()
