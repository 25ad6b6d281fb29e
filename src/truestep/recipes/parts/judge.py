# SPDX-License-Identifier: Apache-2.0
"""A network that names digits, and what it says of samples."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from truestep.recipes import digits


def judge(images: Tensor, labels: Tensor, *, epochs: int) -> nn.Module:
    """Return a network that names digits: always the same one, and no stream of the run's is drawn from."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = digits.Net(width=16, dropout=0.25)
        optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
        for _ in range(epochs):
            for rows in torch.split(torch.randperm(len(labels)), 64):
                optimizer.zero_grad()
                loss = F.cross_entropy(net(digits.moved(images[rows])), labels[rows])
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
    return net.eval().requires_grad_(False)


def verdict(scores: Tensor, asked: Tensor) -> dict[str, float]:
    """Return what the judge's scores say of the samples."""
    confidence, named = scores.softmax(1).max(1)
    share = named.bincount(minlength=10) / len(named)
    sure = confidence >= 0.9
    found = {
        "sure": sure,
        "sure_and_asked_for": sure & (named == asked),
        "rarest": share.min(),
        "commonest": share.max(),
    }
    return {name: float(value.float().mean()) for name, value in found.items()}
