# SPDX-License-Identifier: Apache-2.0
"""A language model of characters that learns Python from the standard library's own source.

A recurrent network reads the library's files, every tenth held out. Logged are its bits per character on those, the share of a
bigram model's bits (counts of what follows on each character), and text that it writes.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import truestep as ts
from truestep.recipes.parts.library import CHARACTERS, bigram_bits, library_text


@dataclass(frozen=True)
class Config:
    """What can be chosen."""

    epochs: int = 1  # passes over the text
    characters: int = 4_000_000  # of the library, to learn from; a tenth as many are held out at most
    length: int = 128  # characters that are predicted in a row
    batch_size: int = 32  # rows per update
    width: int = 256  # units of the recurrent layer
    lr: float = 4e-3  # highest learning rate
    written: int = 600  # characters of each text that is logged
    temperature: float = 0.7  # of that text; lower is surer
    log_steps: int = 100  # between two looks at it
    micro_batch: int | None = None  # most rows computed at once; the update is the same
    threads: int = 1  # of torch on a CPU


class CharacterModel(nn.Module):
    """Characters (batch, time) to scores of the next one (batch, time, characters), and the state after the last."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(len(CHARACTERS), 64)
        self.recurrent = nn.GRU(64, width, batch_first=True)
        self.head = nn.Linear(width, len(CHARACTERS))

    def forward(self, characters: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Read on from `state`."""
        outputs, state = self.recurrent(self.embedding(characters.long()), state)
        return self.head(outputs), state


@torch.no_grad()
def write_text(model: nn.Module, num_characters: int, temperature: float, seed: int) -> str:
    """Return text that the model writes after a line end, one character after another."""
    device = next(model.parameters()).device
    generator = torch.Generator(device).manual_seed(seed)
    character, state = torch.zeros(1, 1, dtype=torch.long, device=device), None
    written = []
    for _ in range(num_characters):
        scores, state = model(character, state)
        character = ts.sample_logits(scores[:, -1], temperature=temperature, generator=generator)
        written.append(CHARACTERS[int(character)])
    return "".join(written)


def train(run: Any, config: Config) -> None:
    """Train the model; log bits on held-out files and text every so many steps."""
    torch.set_num_threads(config.threads)
    known, held_out = (
        text.unfold(0, config.length + 1, config.length) for text in library_text(config.characters)
    )
    of_bigrams = bigram_bits(known[:, :-1].flatten(), held_out)
    train = run.data(known, batch_size=config.batch_size, shuffle=True)
    test = run.data(held_out, batch_size=128)
    total = config.epochs * len(train)
    model = run.learner(
        CharacterModel(config.width),
        lambda p: torch.optim.AdamW(p.decayed(0.01), lr=config.lr),
        clip=ts.ClipNorm(1.0),
        schedule=lambda o: ts.warmup_cosine(o, warmup_steps=min(50, total - 1), total_steps=total),
        micro_batch=config.micro_batch,
    )

    def bits(rows: Tensor) -> Tensor:
        scores, _ = model(rows[:, :-1])
        losses = F.cross_entropy(scores.transpose(1, 2), rows[:, 1:].long(), reduction="none")
        return losses.mean(1) / math.log(2)

    for _ in run.epochs(config.epochs):
        for rows in run.batches(train):
            model.update(bits, rows)
            if run.step % config.log_steps == 0 or run.step == total:
                test_bits = model.evaluate(bits, test)
                text = ts.Text(write_text(model.module, config.written, config.temperature, run.step))
                run.log(test_bits=test_bits, share_of_bigram=test_bits / of_bigrams, text=text)
