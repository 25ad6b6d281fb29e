# SPDX-License-Identifier: Apache-2.0
"""A diffusion model with a moving average; noise and time steps are drawn in the loss, for each example."""

import tempfile
from pathlib import Path

import torch
from torch import nn

import truestep as ts

EPOCHS, BATCH, SIZE, TIMES, DECAY = 3, 7, 4, 50, 0.9
KEPT = torch.cumprod(1 - torch.linspace(1e-4, 0.02, TIMES), 0)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Embedding(TIMES, 8)
        self.layers = nn.Sequential(nn.Linear(SIZE + 8, 16), nn.SiLU(), nn.Linear(16, SIZE))

    def forward(self, x, t):
        return self.layers(torch.cat([x, self.time(t)], 1))


def data():
    return torch.randn(4 * BATCH, SIZE, generator=torch.Generator().manual_seed(1))


def losses(net, images, noise, t):
    kept = KEPT[t][:, None]
    return (net(kept.sqrt() * images + (1 - kept).sqrt() * noise, t) - noise).square().mean(1)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, fused=True)


def by_hand():
    """Train with the noise and the time steps that an undisturbed run draws."""
    drawn = []
    with tempfile.TemporaryDirectory() as folder:
        with_a_run(Path(folder) / "run", lambda _: None, drawn)
    ts.seed_everything(5)
    net = Denoiser()
    average = torch.optim.swa_utils.AveragedModel(
        net, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(DECAY)
    )
    optimizer = sgd(net.parameters())
    batches = [batch for _ in range(EPOCHS) for batch in data().split(BATCH)]
    for images, (noise, t) in zip(batches, drawn, strict=True):
        optimizer.zero_grad()
        losses(net, images, noise, t).mean().backward()
        optimizer.step()
        average.update_parameters(net)
    return [*net.parameters(), *average.module.parameters()]


def with_a_run(directory, after_each_update, drawn=None):
    run = ts.Run(directory, seed=5, saving=ts.Saving(every_steps=1), progress=False)
    ema = ts.EMA(decay=DECAY, warmup=False, starts_at=1)
    net = run.learner(Denoiser(), sgd, ema=ema)
    train = run.data(data(), batch_size=BATCH)

    def loss(images):
        noise = ts.randn(images.shape)
        t = (ts.rand(len(images)) * TIMES).long()
        if drawn is not None:
            drawn.append((noise, t))
        return losses(net, images, noise, t)

    for _ in run.epochs(EPOCHS):
        for images in run.batches(train):
            net.update(loss, images)
            after_each_update(run)
    with net.averaged() as averaged:
        average = [parameter.detach().clone() for parameter in averaged.parameters()]
    return [*net.parameters(), *average]
