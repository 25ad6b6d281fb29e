# SPDX-License-Identifier: Apache-2.0
"""Batches arrive on the GPU whole, whatever is done with the previous one meanwhile."""

import pytest
import torch
from torch.utils.data import Dataset

from truestep.engine.data import DataOptions, open_source

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


class Squares(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return index, torch.full((1000, 100), float(index))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_copies_ahead_are_whole(num_workers):
    device = torch.device("cuda")
    source = open_source(
        Squares(), DataOptions(batch_size=8, shuffle=True, num_workers=num_workers), seed=0, device=device
    )
    seen = []
    for indices, values in source.batches(0):
        assert [indices.device.type, values.device.type] == ["cuda", "cuda"]
        assert bool((values == indices[:, None, None]).all())
        seen += indices.tolist()
        torch.randn(2000, 2000, device=device).matmul(torch.randn(2000, 2000, device=device))
    assert list(range(64)) == sorted(seen)
    source.close()


@pytest.mark.parametrize("on_device", [None, True, False])
def test_tensors_in_memory_reach_the_device(on_device):
    options = DataOptions(batch_size=8, shuffle=True, on_device=on_device)
    data = torch.arange(100)
    source = open_source(data, options, seed=0, device=torch.device("cuda"))
    expected = [batch.tolist() for batch in open_source(data, options, seed=0).batches(0)]
    batches = list(source.batches(0))
    assert {"cuda"} == {batch.device.type for batch in batches}
    assert expected == [batch.tolist() for batch in batches]
    assert "data kept on" in {choice.name for choice in source.choices}
