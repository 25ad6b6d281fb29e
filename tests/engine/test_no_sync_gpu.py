# SPDX-License-Identifier: Apache-2.0
"""The law of no hidden synchronisation: torch raises at each one, and updates pass."""

import pytest
import torch
from torch import nn

import truestep as ts

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

KINDS = {
    "plain": {},
    "clipped by norm": {"clip": ts.ClipNorm(1.0)},
    "clipped by value": {"clip": ts.ClipValue(0.1)},
    "clipped per unit": {"clip": ts.ClipAdaptive()},
    "split": {"micro_batch": 7},
    "averaged": {"ema": ts.EMA()},
    "scheduled": {"schedule": lambda o: ts.warmup_cosine(o, warmup_steps=2, total_steps=9)},
    "bf16-mixed": {"precision": "bf16-mixed"},
    "fp16-mixed": {"precision": "fp16-mixed", "clip": ts.ClipNorm(1.0)},
}


@pytest.mark.parametrize("kind", KINDS)
def test_updates_make_no_synchronisation(kind, tmp_path):
    with ts.Run(tmp_path, device="cuda", progress=False) as run:
        module = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
        net = run.learner(module, lambda p: torch.optim.AdamW(p, lr=1e-3), **KINDS[kind])
        batch = torch.randn(32, 8, device="cuda")
        loss = lambda rows: ts.weighted(net(rows).squeeze(1).square(), (rows[:, 0] > 0).float())
        net.update(loss, batch)  # the first one may make states and choose kernels
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            for _ in range(100):
                net.update(loss, batch)
        finally:
            torch.cuda.set_sync_debug_mode("default")
