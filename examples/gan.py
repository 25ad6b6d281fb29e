# SPDX-License-Identifier: Apache-2.0
"""Two learners: a Wasserstein GAN with a gradient penalty (Gulrajani et al., 2017) on eight Gaussians in a ring.

    python examples/gan.py [DIRECTORY]

Each update changes its own learner and nothing else, so no detach() and no zero_grad() is needed anywhere.
"""

import math
import sys

import torch
from torch import Tensor, nn

import truestep as ts

CRITIC_UPDATES = 3
PENALTY = 1.0


def ring(num_points: int) -> Tensor:
    """Points around eight centres on a circle of radius 2."""
    angles = torch.randint(0, 8, (num_points,)) * math.pi / 4
    return 2 * torch.stack([angles.cos(), angles.sin()], dim=1) + 0.05 * torch.randn(num_points, 2)


def network(num_inputs: int, num_outputs: int) -> nn.Module:
    return nn.Sequential(
        *(nn.Linear(num_inputs, 128), nn.ReLU()),
        *(nn.Linear(128, 128), nn.ReLU()),
        nn.Linear(128, num_outputs),
    )


def main(directory: str = "runs/gan", epochs: int = 8) -> float:
    run = ts.Run(directory, seed=0)
    train = run.data(ring(3200), batch_size=128, shuffle=True)
    adam = lambda p: torch.optim.Adam(p, lr=1e-3, betas=(0.0, 0.9))  # noqa: E731
    generator = run.learner(network(8, 2), adam, name="generator", ema=ts.EMA(decay=0.99))
    critic = run.learner(network(2, 1), adam, name="critic")

    def fake(num_points: int) -> Tensor:
        return generator(ts.randn(num_points, 8, device=run.device))

    def critic_loss(real: Tensor) -> ts.Weighted:
        made = fake(len(real))
        penalty = ts.gradient_penalty(critic, real, made)
        distance = (critic(real) - critic(made)).squeeze(1)
        return ts.weighted(PENALTY * penalty - distance, distance=distance, penalty=penalty)

    def generator_loss(real: Tensor) -> Tensor:
        return -critic(fake(len(real))).squeeze(1)

    def far_off(real: Tensor) -> Tensor:
        """How far each made point is from the ring."""
        return (fake(len(real)).norm(dim=1) - 2).abs()

    for _ in run.epochs(epochs):
        for real in run.batches(train):
            for _ in range(CRITIC_UPDATES):
                critic.update(critic_loss, real)
            generator.update(generator_loss, real)
        run.log(far_off=generator.evaluate(far_off, train, averaged=True))

    mean = generator.evaluate(far_off, train, averaged=True)
    print(f"made points are {mean:.2f} off the ring on average; see {run.directory}/report.html")
    return mean


if __name__ == "__main__":
    main(*sys.argv[1:2])
