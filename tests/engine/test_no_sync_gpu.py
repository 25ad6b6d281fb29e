# SPDX-License-Identifier: Apache-2.0
"""The law of no hidden synchronisation: torch raises at each one, and updates pass."""

import pytest
import torch
from support.steps import LOSSES, OPTIMIZERS, OPTIONS, training

import truestep as ts

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", OPTIONS)
def test_updates_make_no_synchronisation(kind, loss, optimizer, tmp_path):
    with ts.Run(tmp_path, device="cuda", progress=False) as run:
        _, update = training(run.learner, OPTIONS[kind], optimizer, loss)
        update()  # the first one may make states and choose kernels
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            for _ in range(20):
                update()
        finally:
            torch.cuda.set_sync_debug_mode("default")
