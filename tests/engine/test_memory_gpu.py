# SPDX-License-Identifier: Apache-2.0
"""micro_batch="auto" on a GPU under a real limit: `set_per_process_memory_fraction`."""

import pytest
import torch
from torch import nn

from truestep.engine.shared_context import LearnerContext

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.fixture
def limited():
    """Leave 256 MiB beyond what is reserved now."""
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved(0) + 256 * 2**20) / total, 0)
    yield
    torch.cuda.set_per_process_memory_fraction(1.0, 0)
    torch.cuda.empty_cache()


def train(make_learner, micro_batch):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(8, 64), nn.BatchNorm1d(64), nn.Dropout(0.3), nn.Linear(64, 8))
    context = LearnerContext(torch.device("cuda", 0))
    learner = make_learner(module, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), context)
    data = torch.randn(64, 8, device="cuda", generator=torch.Generator("cuda").manual_seed(1))
    sizes = []

    def loss(x):
        sizes.append(len(x))
        rows = (learner(x).sum(1) * torch.rand(len(x), device="cuda"))[:, None].expand(-1, 2**20)
        for _ in range(4):
            rows = rows.sin()
        return rows.mean(1)

    learner.update(loss, data, micro_batch=micro_batch)
    return learner, sizes


@pytest.mark.filterwarnings("ignore:Batch normalisation")
def test_the_same_batch_is_tried_again_smaller_and_ends_at_the_same_bits(make_learner, limited):
    learner, sizes = train(make_learner, "auto")
    size = learner._parts.counters.micro_batch_in_use
    assert (sizes[0], size in (32, 16, 8, 4)) == (64, True)
    assert [size] * (64 // size) == sizes[-64 // size :]
    explicit, _ = train(make_learner, size)
    for name, tensor in explicit.state_dict().items():
        assert torch.equal(tensor, learner.state_dict()[name]), name
