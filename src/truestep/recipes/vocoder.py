# SPDX-License-Identifier: Apache-2.0
"""A small vocoder: it turns noise and a log-mel spectrogram into sound.

In the manner of Parallel WaveGAN (Yamamoto, Song & Kim, 2020, arXiv:1910.11480), computed in four bands: first with a spectral loss
alone, then a discriminator joins. --data is a folder of WAV files; without it harmonic sounds are made.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import truestep as ts
from truestep.recipes.parts.audio_pieces import sound_pieces
from truestep.recipes.parts.generator import BANDS, VocoderGenerator
from truestep.recipes.parts.mel import LogMel

RESOLUTIONS = [(512, 64, 256), (1024, 128, 512), (256, 32, 128)]


@dataclass(frozen=True)
class Config:
    """What can be chosen."""

    data: Path | None = None  # folder of WAV files: 16 bits, one channel, one rate
    epochs: int = 36  # passes over the pieces
    adversarial_epochs: int = 12  # the last of them, in which the discriminator takes part
    adversarial_weight: float = 0.1  # of its verdict beside the spectral loss
    batch_size: int = 8  # pieces per update
    samples: int = 2048  # of a piece; a multiple of 64
    channels: int = 32  # of the generator
    layers: int = 8  # of the generator
    mels: int = 40  # bands of the spectrogram
    lr: float = 2e-3  # highest of the generator; the discriminator has half of it
    micro_batch: int | None = None  # most pieces computed at once; the update is the same
    threads: int = 1  # of torch on a CPU


def sound_discriminator(channels: int = 16) -> nn.Sequential:
    """Return a network that scores stretches of a waveform: (batch, 1, time) to (batch, 1, time / 16)."""
    return nn.Sequential(
        *(nn.Conv1d(1, channels, 15, padding=7), nn.LeakyReLU(0.2)),
        *(nn.Conv1d(channels, 2 * channels, 17, stride=4, padding=8), nn.LeakyReLU(0.2)),
        *(nn.Conv1d(2 * channels, 4 * channels, 17, stride=4, padding=8, groups=4), nn.LeakyReLU(0.2)),
        nn.Conv1d(4 * channels, 1, 3, padding=1),
    )


@torch.no_grad()
def vocoder_audio_samples(net: nn.Module, mel_of: LogMel, real: Tensor, rate: int) -> dict[str, Any]:
    """Return held-out pieces and what is made of them, one after another, with their spectrograms: real above, made below."""
    noise = torch.randn(len(real), BANDS, real.shape[1] // BANDS, generator=torch.Generator().manual_seed(0))
    both = [real.flatten()[None], net(noise.to(real), mel_of(real)).flatten()[None]]
    lines = [mel_of(wave)[0].flip(0) for wave in both]
    shown = {"spectrograms": ts.Image(torch.cat(lines), low=-9.0, high=float(lines[0].max()))}
    return {**shown, "real": ts.Audio(both[0], rate), "made": ts.Audio(both[1], rate)}


def make_vocoder_learners(run: Any, config: Config, steps: int) -> tuple[Any, Any]:
    """Return the generator and the discriminator, which begins late; `steps`: of an epoch."""
    total, late = config.epochs * steps, (config.epochs - config.adversarial_epochs) * steps
    common: dict[str, Any] = {"clip": ts.ClipNorm(5.0), "micro_batch": config.micro_batch}
    generator = run.learner(
        VocoderGenerator(config.channels, config.layers, config.mels),
        lambda p: torch.optim.Adam(p, lr=config.lr),
        schedule=lambda o: ts.warmup_cosine(o, warmup_steps=min(20, total - 1), total_steps=total),
        **common,
    )
    adam = lambda p: torch.optim.Adam(p, lr=config.lr / 2)  # noqa: E731
    return generator, run.learner(sound_discriminator(), adam, name="discriminator", starts_at=late, **common)


def train(run: Any, config: Config) -> None:
    """Train both; log the loss of held-out sound, and some of it with what is made of it, to see and to hear."""
    torch.set_num_threads(config.threads)
    known, held_out, rate = sound_pieces(config.data, config.samples)
    train = run.data(known, batch_size=config.batch_size, shuffle=True)
    test = run.data(held_out, batch_size=config.batch_size)
    mel_of, stft = LogMel(config.mels, rate).to(run.device), ts.nn.MultiResolutionSTFTLoss(RESOLUTIONS)
    generator, critic = make_vocoder_learners(run, config, len(train))

    def generate_sound(real: Tensor) -> Any:
        noise = ts.randn(len(real), BANDS, real.shape[1] // BANDS, device=real.device)
        return generator(noise, mel_of(real))

    def critic_loss(real: Tensor) -> Any:
        of_real, of_fake = critic(real[:, None]), critic(generate_sound(real)[:, None])
        return ((of_real - 1).square() + of_fake.square()).mean((1, 2))

    def generator_loss(real: Tensor) -> ts.Weighted:
        fake = generate_sound(real)
        loss = stft(fake, real)
        fooled = (critic(fake[:, None]) - 1).square().mean((1, 2)) if critic.started else 0.0
        return ts.weighted(loss.values + config.adversarial_weight * fooled, **loss.terms)

    for epoch in run.epochs(config.epochs):
        if epoch == 0:
            run.log(test_stft=generator.evaluate(lambda real: stft(generate_sound(real), real).values, test))
        for real in run.batches(train):
            critic.update(critic_loss, real)
            generator.update(generator_loss, real)
        run.log(test_stft=generator.evaluate(lambda real: stft(generate_sound(real), real).values, test))
        if epoch % 10 == 0 or epoch + 1 == config.epochs:
            run.log(**vocoder_audio_samples(generator.module, mel_of, held_out[:8].to(run.device), rate))
