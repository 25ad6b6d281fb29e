# SPDX-License-Identifier: Apache-2.0
"""A small run that was left in its middle by 0.1.0: `tests/run/golden/0.1.0` is its directory."""

import os
from collections import Counter

import torch
from torch.nn.functional import mse_loss

import truestep as ts

STATE = {
    "tuple": (1, (2.5, None), [True, "text"]),
    "by number": {0: "zero", -3: {"nested": (1,)}},
    "by others": {None: 1, True: 2, 0.5: 3, (1, "a"): 4},
    "__tuple__": ["a dict's own key"],
    "counts": Counter({"seen": 3, 7: 1}),
    "tensors": {0: torch.arange(4.0), "same": (torch.tensor(7),)},
}


def train(directory, *, state=None, leave_at=None):
    """Train for 4 epochs of 3 steps and return the run and its learner; `leave_at` a step the process dies."""
    torch.manual_seed(0)
    saving = ts.Saving(every_steps=5, every_seconds=None, at_epoch_end=False, keep_last=1, background=False)
    run = ts.Run(directory, seed=3, device="cpu", saving=saving, progress=False, doctor=False)
    net = run.learner(
        torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Dropout(0.2), torch.nn.Linear(2, 1)),
        lambda p: torch.optim.AdamW(p, lr=0.1, betas=(0.8, 0.9)),
        schedule=lambda o: ts.warmup_cosine(o, warmup_steps=3, total_steps=12),
        ema=ts.EMA(decay=0.9),
    )
    inputs = torch.randn(12, 3, generator=torch.Generator().manual_seed(1))
    data = run.data((inputs, inputs.sum(1, keepdim=True)), batch_size=4, shuffle=True)
    run.state.update(state or {})

    def loss(batch):
        return mse_loss(net(batch[0]), batch[1], reduction="none").mean(1)

    for _ in run.epochs(4):
        for batch in run.batches(data):
            net.update(loss, batch)
            if run.step == leave_at:
                os._exit(0)
    return run, net
