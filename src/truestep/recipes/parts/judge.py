# SPDX-License-Identifier: Apache-2.0
"""A network that names digits, and what it sees in samples."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import truestep as ts
from truestep.recipes import digits


def digit_judge(images: Tensor, labels: Tensor, *, epochs: int) -> nn.Module:
    """Return a network that names digits: always the same one, and no stream of the run's is drawn from."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = digits.DigitsNet(width=16, dropout=0.25)
        optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
        for _ in range(epochs):
            for rows in torch.split(torch.randperm(len(labels)), 64):
                optimizer.zero_grad()
                loss = F.cross_entropy(net(digits.moved_digits(images[rows])), labels[rows])
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
    return net.eval().requires_grad_(False)


class DigitJury:
    """Has the same samples drawn each time, and says what the judge sees in them."""

    def __init__(self, judge: nn.Module, noise: int, device: torch.device, *, samples: int = 2000) -> None:
        self.judge = judge.to(device)
        self.noise = torch.randn(samples, noise, generator=torch.Generator().manual_seed(0)).to(device)
        self.asked = torch.arange(samples, device=device) % 10

    @torch.no_grad()
    def __call__(self, generator: nn.Module) -> dict[str, float | ts.Image]:
        """Return shares of the samples, and a hundred of these."""
        made = generator(self.noise, self.asked).view(-1, 1, 8, 8)
        confidence, named = self.judge(made).softmax(1).max(1)
        seen = named.bincount(minlength=10) / len(named)
        sure = (confidence >= 0.9).float()
        return {
            "sure": float(sure.mean()),
            "sure_and_asked_for": float((sure * (named == self.asked)).mean()),
            "rarest": float(seen.min()),
            "commonest": float(seen.max()),
            "samples": ts.Image(made[:100]),
        }
