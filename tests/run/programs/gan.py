# SPDX-License-Identifier: Apache-2.0
"""The order of torch's DCGAN tutorial: one generated batch for both updates, by hand and with two learners."""

import torch
import torch.nn.functional as F
from torch import nn

import truestep as ts

EPOCHS, BATCH, NOISE, SIZE = 2, 6, 4, 8


def networks():
    ts.seed_everything(3)
    generator = nn.Sequential(nn.Linear(NOISE, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, SIZE))
    return generator, nn.Sequential(
        nn.Linear(SIZE, 10), nn.BatchNorm1d(10), nn.LeakyReLU(0.2), nn.Linear(10, 1)
    )


def data():
    """Images beside the noise that their batch's generated ones are made of: the same draws for both."""
    draw = torch.Generator().manual_seed(1)
    return torch.randn(3 * BATCH, SIZE, generator=draw) + 2, torch.randn(3 * BATCH, NOISE, generator=draw)


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.02, betas=(0.5, 0.999), fused=True)


def loss_of(scores, label):
    labels = torch.full_like(scores, label)
    return F.binary_cross_entropy_with_logits(scores, labels, reduction="none").squeeze(1)


def by_hand():
    generator, discriminator = networks()
    of_generator, of_discriminator = adam(generator.parameters()), adam(discriminator.parameters())
    for _ in range(EPOCHS):
        for images, noise in zip(*(each.split(BATCH) for each in data()), strict=True):
            fake = generator(noise)
            of_discriminator.zero_grad()
            real_and_fake = loss_of(discriminator(images), 1.0) + loss_of(discriminator(fake.detach()), 0.0)
            real_and_fake.mean().backward()
            of_discriminator.step()
            # The generator's update leaves the discriminator's statistics alone, which the tutorial moves a third time.
            statistics = {name: buffer.clone() for name, buffer in discriminator.named_buffers()}
            of_generator.zero_grad()
            loss_of(discriminator(fake), 1.0).mean().backward()
            of_generator.step()
            for name, buffer in discriminator.named_buffers():
                buffer.copy_(statistics[name])
    return [*generator.state_dict().values(), *discriminator.state_dict().values()]


def with_a_run(directory, after_each_update):
    run = ts.Run(directory, seed=3, saving=ts.Saving(every_steps=1), progress=False)
    generator, discriminator = networks()
    generator = run.learner(generator, adam, name="generator")
    discriminator = run.learner(discriminator, adam, name="discriminator")
    train = run.data(data(), batch_size=BATCH)
    for _ in run.epochs(EPOCHS):
        for images, noise in run.batches(train):
            fake = generator(noise)
            discriminator.update(
                lambda images, fake=fake: (
                    loss_of(discriminator(images), 1.0) + loss_of(discriminator(fake.detach()), 0.0)
                ),
                images,
            )
            after_each_update(run)
            generator.update(lambda fake: loss_of(discriminator(fake), 1.0), fake)
            after_each_update(run)
    return [*generator.state_dict().values(), *discriminator.state_dict().values()]
