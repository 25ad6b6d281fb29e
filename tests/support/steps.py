# SPDX-License-Identifier: Apache-2.0
"""The kinds of steps that the law of no hidden synchronisation is held over: on a card, on the stand-in, on fake tensors."""

import torch
from torch import nn
from torch.optim import SGD, Adagrad, AdamW

import truestep as ts

OPTIMIZERS = {
    "adamw": lambda p: AdamW(p, lr=1e-3),
    "sgd": lambda p: SGD(p, lr=1e-2, momentum=0.9),
    "adagrad": lambda p: Adagrad(p, lr=1e-2),
}
if torch.__version__ < "2.13":
    del OPTIMIZERS["adagrad"]  # it has no fused kernel for CUDA there, and the host waits for each step
OPTIONS = {
    "plain": {},
    "clipped by norm": {"clip": ts.ClipNorm(1.0)},
    "clipped by value": {"clip": ts.ClipValue(0.1)},
    "clipped per unit": {"clip": ts.ClipAdaptive()},
    "split": {"micro_batch": 7},
    "averaged": {"ema": ts.EMA()},
    "scheduled": {"schedule": lambda o: ts.warmup_cosine(o, warmup_steps=2, total_steps=9)},
    "bf16-mixed": {"precision": "bf16-mixed"},
    "bf16": {"precision": "bf16"},
    "fp16-mixed": {"precision": "fp16-mixed", "clip": ts.ClipNorm(1.0)},
    "float64": {"precision": "float64"},
}
LOSSES = {
    "values": lambda net, rows: net(rows).squeeze(1).square(),
    "weighted": lambda net, rows: ts.weighted(
        net(rows).squeeze(1).square(), (rows[:, 0] > 0).float(), size=rows[:, 1].abs()
    ),
}


def module_for(options):
    """Return a module for these options of a learner: with batch norm and dropout, unless they split the batch."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.Dropout(0.1), nn.ReLU(), nn.Linear(32, 1))
    return nn.Sequential(module[0], *module[3:]) if "micro_batch" in options else module


def training(make_learner, options, optimizer="adamw", loss="weighted", module=None):
    """Return a learner and what makes an update of it, on device="cuda"; `make_learner` may be `run.learner`."""
    net = make_learner(module or module_for(options), OPTIMIZERS[optimizer], **options)
    kind = torch.float64 if options.get("precision") == "float64" else torch.float32
    rows = torch.randn(32, 8, dtype=kind, device="cuda:0")
    return net, lambda: net.update(lambda batch: LOSSES[loss](net, batch), rows)
