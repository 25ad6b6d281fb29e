# SPDX-License-Identifier: Apache-2.0
"""A Wasserstein GAN with gradient penalty that draws the digit it is asked for.

Learns from scikit-learn's scans of 8 x 8 pixels (Gulrajani et al., 2017, arXiv:1704.00028). A judge, which has learned to name real
digits, looks at the samples. Logged are the share that it names with 0.9 confidence, the share that it so names as what was asked
for, and how often it sees the rarest and the commonest digit.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import truestep as ts
from truestep.recipes import digits


@dataclass(frozen=True)
class Config:
    """What can be chosen."""

    epochs: int = 160  # passes over the images
    batch_size: int = 64  # images per update
    critic_updates: int = 4  # for each of the generator
    lr: float = 5e-4  # of both learners at the start; it falls to 0
    penalty: float = 1.0  # weight of the gradient penalty
    noise: int = 32  # numbers that a sample is made of, besides its digit
    width: int = 256  # units of each hidden layer
    judge_epochs: int = 30  # passes over the real images by the network that names the samples
    log_epochs: int = 20  # between two looks at the samples
    micro_batch: int | None = None  # most images computed at once; the update is the same
    threads: int = 1  # of torch on a CPU


class DigitGanNetwork(nn.Module):
    """Two hidden layers that see a digit's number beside their inputs; no norm, since the penalty is of one example."""

    def __init__(self, num_inputs: int, width: int, num_outputs: int, last: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Linear(num_inputs + 10, width), nn.LeakyReLU(0.2)),
            *(nn.Linear(width, width), nn.LeakyReLU(0.2)),
            *(nn.Linear(width, num_outputs), last),
        )

    def forward(self, inputs: Tensor, asked: Tensor) -> Tensor:
        """Return (batch, num_outputs)."""
        outputs: Tensor = self.layers(torch.cat([inputs, F.one_hot(asked, 10).to(inputs)], dim=1))
        return outputs


def make_digit_gan_learners(run: Any, config: Config, total: int) -> tuple[Any, Any]:
    """Return generator and critic, alike except for the number of their updates."""

    def make_learner(name: str, net: DigitGanNetwork, updates: int, **options: Any) -> Any:
        return run.learner(
            net,
            lambda p: torch.optim.Adam(p, lr=config.lr, betas=(0.5, 0.9)),
            name=name,
            schedule=lambda o: ts.warmup_linear(o, warmup_steps=0, total_steps=updates),
            micro_batch=config.micro_batch,
            **options,
        )

    net = DigitGanNetwork(config.noise, config.width, 64, nn.Sigmoid())
    generator = make_learner("generator", net, total, ema=ts.EMA(decay=0.995))
    net = DigitGanNetwork(64, config.width, 1, nn.Identity())
    return generator, make_learner("critic", net, config.critic_updates * total)


def train(run: Any, config: Config) -> None:
    """Train generator and critic; log a grid of samples, a column a digit, and what the judge says of them."""
    torch.set_num_threads(config.threads)
    (images, labels), _ = digits.load_digit_images()
    look = DigitJudge(digit_classifier(images, labels, epochs=config.judge_epochs), config.noise, run.device)
    train = run.data((images.flatten(1), labels), batch_size=config.batch_size, shuffle=True)
    generator, critic = make_digit_gan_learners(run, config, config.epochs * len(train))

    def generate_digits(asked: Tensor) -> Tensor:
        made: Tensor = generator(ts.randn(len(asked), config.noise, device=asked.device), asked)
        return made

    def critic_loss(batch: tuple[Tensor, Tensor]) -> ts.Weighted:
        real, asked = batch
        made = generate_digits(asked)
        distance = (critic(real, asked) - critic(made, asked)).squeeze(1)
        penalty = ts.gradient_penalty(critic, real, made, conditions=asked)
        return ts.weighted(config.penalty * penalty - distance, distance=distance, penalty=penalty)

    def generator_loss(batch: tuple[Tensor, Tensor]) -> Tensor:
        scores: Tensor = critic(generate_digits(batch[1]), batch[1])
        return -scores.squeeze(1)

    for epoch in run.epochs(config.epochs):
        for batch in run.batches(train):
            for _ in range(config.critic_updates):
                critic.update(critic_loss, batch)
            generator.update(generator_loss, batch)
        if (epoch + 1) % config.log_epochs == 0 or epoch + 1 == config.epochs:
            with generator.averaged() as averaged:
                run.log(**look(averaged))


def digit_classifier(images: Tensor, labels: Tensor, *, epochs: int) -> nn.Module:
    """Return a network that names digits: always the same one, and no stream of the run's is drawn from."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = digits.DigitsNet(width=16, dropout=0.25)
        optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
        for _ in range(epochs):
            for rows in torch.split(torch.randperm(len(labels)), 64):
                optimizer.zero_grad()
                loss = F.cross_entropy(net(digits.augment_digits(images[rows])), labels[rows])
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
    return net.eval().requires_grad_(False)


class DigitJudge:
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
