# SPDX-License-Identifier: Apache-2.0
"""On a GPU a save queues its copies and returns; what the stream does next can't overtake them."""

import pytest
import torch

from truestep.checkpoints import CheckpointStore

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def test_later_work_of_the_stream_is_not_saved(tmp_path):
    weight = torch.zeros(50_000_000, device="cuda")
    with CheckpointStore(tmp_path) as store:
        for step in range(1, 6):
            weight.fill_(step)
            store.save(step, {"net": {"weight": weight, "rows": weight.view(-1, 100)[::2]}})
            weight.fill_(-1)
            loaded = store.newest().load()["net"]
            assert loaded["weight"].eq(step).all()
            assert loaded["rows"].eq(step).all()


def test_a_save_waits_for_nothing_on_the_device(tmp_path):
    weight = torch.randn(1000, 1000, device="cuda")
    with CheckpointStore(tmp_path) as store:
        store.save(1, {"net": weight})
        store.wait()
        torch.cuda.set_sync_debug_mode("error")
        try:
            store.save(2, {"net": weight})
        finally:
            torch.cuda.set_sync_debug_mode("default")
        assert torch.equal(store.newest().load()["net"], weight.cpu())
