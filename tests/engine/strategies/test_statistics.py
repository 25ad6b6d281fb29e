# SPDX-License-Identifier: Apache-2.0
"""Batch normalisation over ranks says what torch's says on one process."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from truestep.engine.strategies.synchronized_batch_norm import share_rank_statistics, unshare_rank_statistics

# what is reduced over one rank is its own
ALONE = SimpleNamespace(
    num_gathered=0, counts_nothing=False, reduce=lambda tensor: None, wait_all=lambda *_: None
)


def test_one_value_for_each_channel_has_no_variance_and_leaves_the_statistics_as_they_were():
    layer = nn.BatchNorm1d(2)
    before = layer.running_var.clone()
    with pytest.raises(ValueError, match="Expected more than 1 value per channel"):
        layer(torch.ones(1, 2))
    share_rank_statistics(layer, ALONE, lambda: True)
    with pytest.raises(ValueError, match="Expected more than 1 value per channel"):
        layer(torch.ones(1, 2))
    assert torch.equal(layer.running_var, before)
    assert layer(torch.randn(2, 2)).shape == (2, 2)
    unshare_rank_statistics([layer])
